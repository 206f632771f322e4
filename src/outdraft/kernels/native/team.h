// One team of threads for all native work. The caller is member 0; the others spin for a moment after their last work,
// then sleep, so an idle engine burns no core and does not fight PyTorch's own threads for long.
#pragma once
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace outdraft {

// Where all members wait for each other; called inside a job only.
class Barrier {
public:
    explicit Barrier(int size) : size_(size) {}
    void wait();  // throws once a member has failed, which will not come
    void fail() { failed_.store(true); }
    void restore() { arrived_.store(0), failed_.store(false); }  // when no member waits

private:
    const int size_;
    std::atomic<bool> failed_{false};
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<unsigned> round_{0};  // it wraps, after hours
};

constexpr int kTurns = 4;  // counters of parts in use

class Team {
public:
    explicit Team(int size);
    ~Team();
    int size() const { return size_; }
    Barrier& barrier() { return crew_->barrier; }
    std::atomic<int>& taken(int turn) { return crew_->taken[turn % kTurns]; }
    // Runs job(id) on every member; returns when all are done. One job at a time. Throws the first of what they threw.
    void run(const std::function<void(int)>& job);
    // In a forked process, which has none of the threads: the next job starts new ones.
    void renew();

private:
    struct Crew {  // the threads, and everything that they wait on
        explicit Crew(int size) : barrier(size) {}
        void start(int size);
        void work(int id);
        void attempt(int id);
        void close();
        Barrier barrier;
        std::atomic<int> taken[kTurns];
        std::vector<std::thread> threads;
        const std::function<void(int)>* job = nullptr;
        std::exception_ptr error;  // what the job of the first member that failed threw
        alignas(64) std::atomic<unsigned> started{0};  // this one wraps too
        alignas(64) std::atomic<int> finished{0};
        std::atomic<int> sleeping{0};
        bool closing = false;
        std::mutex mutex, one_job;
        std::condition_variable wake;
    };
    const int size_;
    Crew* crew_;
};

// One member's part of a job's work: most of it is its own each time, which keeps weights in its cache; the rest goes to
// members that are free, so that none waits long for one that was held up.
// No member begins another's own part: all meet at a barrier after each product anyway, so one that does not run
// holds the others up there even if its part were done, and its weights would then lie in two caches. Where a member is
// often held up the pass takes fewer threads instead (pace.h).
class Share {
public:
    Share(Team& team, int id) : team_(team), id_(id) {}
    // Does its part of `count` pieces; every member calls it, and all meet at a barrier before the next time.
    template <class Work>
    void each(int count, Work work) {
        const int size = team_.size(), own = count / 4 * 3;
        const int turn = turn_++;
        // Two turns on: no member is there yet, and none is still in the turn that used this counter before.
        if (id_ == 0) team_.taken(turn + 2).store(0, std::memory_order_relaxed);
        for (int i = own * id_ / size; i < own * (id_ + 1) / size; i++) work(i);
        for (int i; (i = own + team_.taken(turn).fetch_add(1, std::memory_order_relaxed)) < count;) work(i);
    }

private:
    Team& team_;
    const int id_;
    int turn_ = 0;
};

// The process's team of this size; made once and kept while anyone holds it. A forked process has teams of its own.
std::shared_ptr<Team> team_of(int size);

}  // namespace outdraft
