// Simulated machines: what passes take on so many threads, with noise; the pace must stay near the best fixed number.
// Prints a line for each and exits 1 if one is missed.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>

#include "pace.h"

using outdraft::Pace;

// Seconds of a pass on so many threads, at pass number i.
using Machine = std::function<double(int threads, int i)>;

static int missed = 0;

static void run(const char* name, int most, int passes, double allowed, const Machine& machine) {
    std::mt19937 random(1);
    std::lognormal_distribution<double> noise(0, 0.15);
    Pace pace(most);
    double taken = 0, best = 1e30;
    for (int i = 0; i < passes; i++) {
        const int threads = pace.begin(0, 1 + i % 2);  // two sizes, each with its own measurements
        if (threads < 1 || threads > most) std::printf("%d threads of %d\n", threads, most), std::exit(1);
        const double seconds = machine(threads, i) * noise(random);
        pace.end(seconds);
        taken += seconds;
    }
    for (int threads = 1; threads <= most; threads++) {
        double fixed = 0;
        for (int i = 0; i < passes; i++) fixed += machine(threads, i) * noise(random);
        best = fixed < best ? fixed : best;
    }
    const bool near = taken < allowed * best;
    std::printf("%s: %.3f of the best fixed number's time%s\n", name, taken / best, near ? "" : " MISSED");
    missed += !near;
}

int main() {
    const auto quiet = [](int threads) { return 1.0 / threads + 0.03 * threads; };
    const auto busy = [](int threads) { return threads == 1 ? 1.1 : 2.5; };
    run("one thread", 1, 100, 1.05, [&](int, int) { return 1.0; });
    run("quiet, two cores", 2, 4000, 1.08, [&](int t, int) { return quiet(t); });
    run("a busy neighbour on two cores", 2, 4000, 1.08, [&](int t, int) { return busy(t); });
    run("a short text beside a neighbour", 2, 200, 1.5, [&](int t, int) { return t == 1 ? 1.0 : 8.0; });
    run("quiet, eight cores", 8, 4000, 1.10, [&](int t, int) { return quiet(t); });
    run("two of eight cores are free", 8, 4000, 1.25, [&](int t, int) { return t <= 2 ? quiet(t) : 3.0; });
    run("a neighbour comes", 2, 4000, 0.85, [&](int t, int i) { return i < 2000 ? quiet(t) : busy(t); });
    run("a neighbour goes", 2, 4000, 0.85, [&](int t, int i) { return i < 2000 ? busy(t) : quiet(t); });
    run("a short text, quiet", 2, 100, 1.10, [&](int t, int) { return quiet(t); });
    run("quiet, with hiccups", 2, 4000, 1.05, [&](int t, int i) { return quiet(t) * (i % 53 ? 1 : 10); });
    run("a short text with hiccups", 2, 100, 1.10, [&](int t, int i) { return quiet(t) * (i % 23 ? 1 : 6); });
    run("quiet, a third saved by two", 2, 4000, 1.05, [&](int t, int) { return t == 1 ? 1.35 : 1.0; });
    run("a tiny model, as quick on one", 2, 4000, 1.05, [&](int, int) { return 1.0; });
    std::mt19937 dice(7);
    std::uniform_real_distribution<double> chance(0, 1);
    for (int passes : {4000, 400})  // most passes meet no stopped thread; one that is stopped is so for long
        run("two neighbours on two cores", 2, passes, passes > 1000 ? 1.15 : 1.35,
            [&](int t, int) { return t == 1 ? (chance(dice) < 0.87 ? 1.0 : 6.0) : (chance(dice) < 0.6 ? 0.6 : 11.0); });
    Pace pace(4);  // as quick on one: it ends there, and no other thread is woken
    int ones = 0;
    for (int i = 0; i < 1000; i++) {
        ones += pace.begin(0, 1) == 1;
        pace.end(1.0 - 1e-3 * (i % 2));
    }
    if (ones < 700) std::printf("one thread in %d of 1000 passes only\n", ones), missed++;
    for (int begins = 2000; begins < 3000; begins += 71) {  // wherever it stands between two trials, it notices soon
        Pace two(2);
        int slow = 0;
        for (int i = 0; i < begins + 100; i++) {
            const int threads = two.begin(0, 1);
            slow += i >= begins && threads == 2;
            two.end(i < begins ? quiet(threads) : 2 * busy(threads));
        }
        if (slow > 30) std::printf("two threads in %d of 100 passes beside a neighbour who came\n", slow), missed++;
    }
    return missed != 0;
}
