// See team.h.
#include "team.h"

#include <pthread.h>

#include <chrono>
#include <map>
#include <stdexcept>
#include <utility>

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
    while (!spin([&] { return passed() || failed_.load(std::memory_order_relaxed); })) std::this_thread::yield();
    if (!passed()) throw std::runtime_error("another member of the team has failed");
}

// All members or none: a barrier would wait for those that are not there.
void Team::Crew::start(int size) {
    try {
        for (int id = 1; id < size; id++) threads.emplace_back([this, id] { work(id); });
    } catch (...) {
        close();
        threads.clear();
        closing = false;
        started.store(0);
        throw;
    }
}

void Team::Crew::close() {
    {
        std::lock_guard<std::mutex> lock(mutex);
        closing = true;
        started.fetch_add(1);
    }
    wake.notify_all();
    for (auto& thread : threads) thread.join();
}

void Team::Crew::work(int id) {
    for (unsigned seen = 0;; seen++) {
        const auto called = [&] { return started.load() != seen; };
        if (!spin(called)) {
            std::unique_lock<std::mutex> lock(mutex);
            sleeping.fetch_add(1);
            wake.wait(lock, called);
            sleeping.fetch_sub(1);
        }
        if (closing) return;
        attempt(id);
        finished.fetch_add(1, std::memory_order_release);
    }
}

// The member's part of the job. The others do not wait at a barrier for one that failed.
void Team::Crew::attempt(int id) {
    try {
        (*job)(id);
    } catch (...) {
        std::lock_guard<std::mutex> lock(mutex);
        if (!error) error = std::current_exception();
        barrier.fail();
    }
}

Team::Team(int size) : size_(size), crew_(new Crew(size)) {}

Team::~Team() {
    crew_->close();
    delete crew_;
}

void Team::run(const std::function<void(int)>& job) {
    Crew& crew = *crew_;
    std::lock_guard<std::mutex> alone(crew.one_job);
    for (auto& one : crew.taken) one.store(0, std::memory_order_relaxed);
    if (size_ == 1) return job(0);
    if (crew.threads.empty()) crew.start(size_);
    crew.job = &job;
    crew.finished.store(0, std::memory_order_relaxed);
    crew.started.fetch_add(1);  // sequentially consistent: a member about to sleep sees it or is seen in `sleeping`
    if (crew.sleeping.load() > 0) {
        std::lock_guard<std::mutex> lock(crew.mutex);
        crew.wake.notify_all();
    }
    crew.attempt(0);
    const auto done = [&] { return crew.finished.load(std::memory_order_acquire) == int(crew.threads.size()); };
    while (!spin(done)) std::this_thread::yield();
    if (!crew.error) return;
    crew.barrier.restore();
    std::rethrow_exception(std::exchange(crew.error, nullptr));
}

// The old crew is left as it is: its mutexes may be held, and its threads can be neither joined nor detached.
void Team::renew() { crew_ = new Crew(size_); }

namespace {

struct Teams {
    std::mutex mutex;
    std::map<int, std::weak_ptr<Team>> by_size;
};

Teams& teams() {
    static Teams& all = *new Teams;  // never destroyed: a model may be freed at the very end
    return all;
}

void before_fork() { teams().mutex.lock(); }
void after_fork() { teams().mutex.unlock(); }
void in_child() {
    for (auto& [size, team] : teams().by_size)
        if (auto held = team.lock()) held->renew();
    after_fork();
}

}  // namespace

std::shared_ptr<Team> team_of(int size) {
    static const int watched = pthread_atfork(before_fork, after_fork, in_child);
    if (watched) throw std::runtime_error("no memory to watch for forks");
    std::lock_guard<std::mutex> lock(teams().mutex);
    auto& known = teams().by_size[size];
    auto team = known.lock();
    if (!team) known = team = std::make_shared<Team>(size);
    return team;
}

}  // namespace outdraft
