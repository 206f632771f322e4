// The thread team, under the thread sanitizer too (.ci/sanitize): jobs with barriers from several callers at once, with
// pauses that let the members fall asleep, teams that are made and dropped, and jobs that fail. Exits 1 if a sum is wrong; a
// race ends it too. Its argument: rounds of each caller.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "team.h"

using outdraft::Team;

// Each member fills its cell, and after the barrier adds up everybody's: plain memory, guarded by the barrier alone.
static void run_job(Team& team, int round) {
    std::vector<int> cells(team.size()), sums(team.size());
    team.run([&](int id) {
        for (int step = 0; step < 3; step++) {
            cells[id] = round + id + step;
            team.barrier().wait();
            sums[id] = 0;
            for (int cell : cells) sums[id] += cell;
            team.barrier().wait();
        }
    });
    int expected = 0;
    for (int id = 0; id < team.size(); id++) expected += round + id + 2;
    for (int sum : sums)
        if (sum != expected) std::printf("a member saw %d, expected %d\n", sum, expected), std::exit(1);
}

// Pieces that go to the thread that is free: each is done once, whatever the turn.
static void share_pieces(Team& team, int round) {
    const int count = 1 + round % 23;
    std::vector<int> done(count);
    team.run([&](int id) {
        outdraft::Share share(team, id);
        for (int turn = 0; turn < 7; turn++) {
            share.each(count, [&](int piece) { done[piece]++; });
            team.barrier().wait();
        }
    });
    for (int times : done)
        if (times != 7) std::printf("a piece was done %d times, expected 7\n", times), std::exit(1);
}

// A job in which one member throws: the others do not wait for it, the caller hears of it, and the next job runs.
static void fail_once(Team& team, int round) {
    const int sick = round % team.size();
    try {
        team.run([&](int id) {
            team.barrier().wait();
            if (id == sick) throw std::out_of_range("sick");
            team.barrier().wait();
            team.barrier().wait();
        });
    } catch (const std::out_of_range&) {
        return;
    }
    std::puts("a job that failed was not reported"), std::exit(1);
}

static void call_often(int size, int rounds) {
    for (int round = 0; round < rounds; round++) {
        const auto team = outdraft::team_of(size);
        if (round % 5 == 4) fail_once(*team, round);
        run_job(*team, round);
        share_pieces(*team, round);
        if (round % 50 == 49) std::this_thread::sleep_for(std::chrono::microseconds(400));  // longer than their patience
    }
}

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 200;
    for (int size : {1, 2, 3, 4}) {
        const auto held = outdraft::team_of(size);  // one team for all callers
        std::vector<std::thread> callers;
        for (int i = 0; i < 3; i++) callers.emplace_back(call_often, size, rounds);
        for (auto& caller : callers) caller.join();
    }
    call_often(3, rounds * 3 / 10);  // a new team every time
    std::puts("team_race: all sums right");
}
