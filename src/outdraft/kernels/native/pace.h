// How many threads work takes: measured. A thread that shares its core with a stranger holds all the others up at every
// barrier, and tiny models are as quick on one. Nothing but the time depends on it: bits are those of any number.
//
// Work of one kind and about as many rows is compared with itself only. Most of it runs on the number that was quickest so
// far; now and then, the more rarely the longer nothing changes, a few passes try half or twice as many.
#pragma once
#include <map>

namespace outdraft {

class Pace {
public:
    explicit Pace(int most) : most_(most) {}

    // Threads for the next work. `rows` of a pass; every begin has its end.
    int begin(int kind, int rows) {
        int size = 0;
        for (; rows > 1; rows = (rows + 1) / 2) size++;
        auto [at, fresh] = gauges_.try_emplace(kind * 64 + size);
        now_ = &at->second;
        if (fresh) now_->threads = held_up_ ? last_ : most_;
        if (!now_->left && most_ > 1 && ++now_->turn >= now_->period) try_another();
        return now_->left ? now_->tried : now_->threads;
    }

    // What it took, for comparable parts (a layer, a step of a chain).
    void end(double seconds) {
        Gauge& g = *now_;
        if (!g.left) {
            g.usual = g.usual ? g.usual + (seconds - g.usual) / 8 : seconds;
            if (g.settled && g.usual > 1.4 * g.settled) g.turn = g.period = kSoon, g.settled = g.usual;  // something came up
            return;
        }
        if (g.left < kTries) g.sum += seconds;  // the first one wakes threads
        if (--g.left) return;
        const double mean = g.sum / (kTries - 1);
        const bool fewer = g.tried < g.threads;
        const bool better = mean < (fewer ? 1.0 : 0.9) * g.usual;  // as quick on fewer is better too
        if (better) {
            held_up_ = fewer && mean < 0.8 * g.usual;
            last_ = g.threads = g.tried, g.usual = mean;
        }
        g.reach = better || g.reach == kFarthest ? 1 : g.reach + 1;
        g.period = better ? kSoon : g.period * 2 < kLate ? g.period * 2 : kLate;
        g.settled = g.usual, g.turn = 0;
    }

private:
    static constexpr int kSoon = 16, kLate = 512, kTries = 4;  // passes
    static constexpr int kFarthest = 3;

    struct Gauge {
        int threads = 1, tried = 0, left = 0;  // left: of a trial
        int turn = 0, period = kSoon;
        bool up = false;  // where the next trial looks
        int reach = 1;    // and how far, in halvings or doublings: farther after each that was in vain
        double usual = 0, settled = 0, sum = 0;
    };

    void try_another() {
        Gauge& g = *now_;
        g.up = g.threads == 1 || (g.up && g.threads < most_);
        g.tried = g.threads;
        for (int i = 0; i < g.reach; i++)
            g.tried = g.up ? (2 * g.tried < most_ ? 2 * g.tried : most_) : (g.tried + 1) / 2;
        g.up = !g.up, g.left = kTries, g.sum = 0;
    }

    int most_;
    int last_ = 1;
    bool held_up_ = false;  // fewer threads were clearly quicker: what is new begins with them
    std::map<int, Gauge> gauges_;
    Gauge* now_ = nullptr;
};

}  // namespace outdraft
