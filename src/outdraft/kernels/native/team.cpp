// See team.h.
#include "team.h"

#include <chrono>
#include <map>

namespace outdraft {

namespace {

constexpr int kPolls = 64;  // between two looks at the clock
constexpr auto kPatience = std::chrono::microseconds(150);

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Polls until `ready` or until patience ends; more threads than cores must not starve each other.
template <class Ready>
bool spin(Ready ready) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    do {
        for (int i = 0; i < kPolls; i++) {
            if (ready()) return true;
            relax();
        }
    } while (std::chrono::steady_clock::now() < until);
    return ready();
}

}  // namespace

void Barrier::wait() {
    if (size_ == 1) return;
    const unsigned round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
        arrived_.store(0, std::memory_order_relaxed);
        round_.store(round + 1, std::memory_order_release);
        return;
    }
    const auto passed = [&] { return round_.load(std::memory_order_acquire) != round; };
    while (!spin(passed)) std::this_thread::yield();
}

Team::Team(int size) : barrier_(size) {
    for (int id = 1; id < size; id++) threads_.emplace_back([this, id] { work(id); });
}

Team::~Team() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
        started_.fetch_add(1);
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
}

void Team::run(const std::function<void(int)>& job) {
    std::lock_guard<std::mutex> alone(one_job_);
    for (auto& one : taken_) one.store(0, std::memory_order_relaxed);
    if (threads_.empty()) return job(0);
    job_ = &job;
    finished_.store(0, std::memory_order_relaxed);
    started_.fetch_add(1);  // sequentially consistent: a member about to sleep sees it or is seen in `sleeping_`
    if (sleeping_.load() > 0) {
        std::lock_guard<std::mutex> lock(mutex_);
        wake_.notify_all();
    }
    job(0);
    const auto done = [&] { return finished_.load(std::memory_order_acquire) == int(threads_.size()); };
    while (!spin(done)) std::this_thread::yield();
}

void Team::work(int id) {
    for (unsigned seen = 0;; seen++) {
        const auto called = [&] { return started_.load() != seen; };
        if (!spin(called)) {
            std::unique_lock<std::mutex> lock(mutex_);
            sleeping_.fetch_add(1);
            wake_.wait(lock, called);
            sleeping_.fetch_sub(1);
        }
        if (closing_) return;
        (*job_)(id);
        finished_.fetch_add(1, std::memory_order_release);
    }
}

std::shared_ptr<Team> team_of(int size) {
    static std::mutex mutex;
    static std::map<int, std::weak_ptr<Team>> teams;
    std::lock_guard<std::mutex> lock(mutex);
    auto team = teams[size].lock();
    if (!team) teams[size] = team = std::make_shared<Team>(size);
    return team;
}

}  // namespace outdraft
