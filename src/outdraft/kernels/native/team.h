// One team of threads for all native work. The caller is member 0; the others spin for a moment after their last work,
// then sleep, so an idle engine burns no core and does not fight PyTorch's own threads for long.
#pragma once
#include <atomic>
#include <condition_variable>
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
    void wait();

private:
    const int size_;
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<int> round_{0};
};

class Team {
public:
    explicit Team(int size);
    ~Team();
    int size() const { return int(threads_.size()) + 1; }
    Barrier& barrier() { return barrier_; }
    // Runs job(id) on every member; returns when all are done. One job at a time.
    void run(const std::function<void(int)>& job);

private:
    void work(int id);
    Barrier barrier_;
    std::vector<std::thread> threads_;
    const std::function<void(int)>* job_ = nullptr;
    alignas(64) std::atomic<int> started_{0};
    alignas(64) std::atomic<int> finished_{0};
    std::atomic<int> sleeping_{0};
    bool closing_ = false;
    std::mutex mutex_, one_job_;
    std::condition_variable wake_;
};

// The process's team of this size; made once and kept while anyone holds it.
std::shared_ptr<Team> team_of(int size);

}  // namespace outdraft
