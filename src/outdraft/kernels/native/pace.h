// How many threads work takes: measured. A thread that shares its core with a stranger holds all the others up at every
// barrier, and tiny models are as quick on one. Nothing but the time depends on it: bits are those of any number.
//
// Work of one kind and about as many rows is compared with itself only. Most of it runs on the number that was quickest so
// far; now and then, the more rarely the longer nothing changes, a few passes try half or twice as many.
#pragma once
#include <algorithm>
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
            const bool first = !g.usual || (g.turn <= 3 && seconds < g.usual);  // the least of three: beginnings are slow
            const double counted = seconds < 2 * g.usual ? seconds : 2 * g.usual;  // one hiccup is no change
            g.usual = first ? seconds : g.usual + (counted - g.usual) / 8;
            g.mean = first ? seconds : g.mean + (seconds - g.mean) / 32;
            if (g.probation) {
                g.probation--, g.bet -= seconds;
                if (g.bet < 0) take_back(g);
            } else if (g.threads > 1 && g.settled && g.usual > 1.4 * g.settled) look_again(g);  // something came up
            return;
        }
        const bool fewer = g.tried < g.threads;
        if (fewer || g.left < kTries) g.sum += seconds, g.counted++;  // the first one wakes threads
        const bool clear = seconds > (g.counted ? 1.25 : 3) * g.usual || (g.counted && seconds < 0.6 * g.usual);
        g.left = clear ? 0 : g.left - 1;
        if (g.left) return;
        const double mean = g.counted ? g.sum / g.counted : seconds;
        // As quick on fewer is better too. Few passes meet a stranger, who then holds them up for long: the mean knows.
        const bool better = fewer ? mean < std::max(g.usual, g.mean) : mean < 0.9 * g.usual;
        if (better) {
            held_up_ = fewer && mean < 0.8 * g.usual;
            if (!fewer) g.before = {g.threads, g.period, g.usual, g.mean}, g.probation = kSoon, g.bet = kSoon * g.mean;
            last_ = g.threads = g.tried, g.usual = g.mean = mean;
            if (held_up_)  // other work is, too
                for (auto& [at, other] : gauges_)
                    if (&other != now_ && other.threads > last_) look_again(other);
        }
        g.reach = better || g.reach == kFarthest ? 1 : g.reach + 1;
        g.period = better ? kSoon : g.period * 2 < kLate ? g.period * 2 : kLate;
        g.settled = g.usual, g.turn = 0;
    }

private:
    static constexpr int kFirst = 4, kSoon = 16, kLate = 512, kTries = 4;  // passes
    static constexpr int kFarthest = 3;

    struct Gauge {
        int threads = 1, tried = 0, left = 0;  // left: of a trial
        int turn = 0, period = kFirst;
        bool up = false;  // where the next trial looks
        int counted = 0;  // passes of this trial that count
        int reach = 1;    // and how far, in halvings or doublings: farther after each that was in vain
        double usual = 0, mean = 0, settled = 0, sum = 0;  // usual: without what was rare and long
        int probation = 0;                                 // passes left in which more threads must keep their promise
        double bet = 0;                                    // seconds that they have for it
        struct {
            int threads, period;
            double usual, mean;
        } before{};  // the change to more threads
    };

    // More threads looked quicker in three passes, and were not in more.
    void take_back(Gauge& g) {
        last_ = g.threads = g.before.threads, g.usual = g.settled = g.before.usual, g.mean = g.before.mean;
        g.period = std::min(2 * g.before.period, kLate), g.turn = g.probation = 0;
    }

    static void look_again(Gauge& g) { g.turn = g.period = kSoon, g.settled = g.usual; }

    void try_another() {
        Gauge& g = *now_;
        g.up = g.threads == 1 || (g.up && g.threads < most_);
        g.tried = g.threads;
        for (int i = 0; i < g.reach; i++)
            g.tried = g.up ? (2 * g.tried < most_ ? 2 * g.tried : most_) : (g.tried + 1) / 2;
        g.up = !g.up, g.left = kTries, g.sum = g.counted = 0;
    }

    int most_;
    int last_ = 1;
    bool held_up_ = false;  // fewer threads were clearly quicker: what is new begins with them
    std::map<int, Gauge> gauges_;
    Gauge* now_ = nullptr;
};

}  // namespace outdraft
