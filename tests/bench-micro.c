/*
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at:
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#include <config.h>
#undef NDEBUG
#include "bench-micro.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench-clock.h"
#include "command-line.h"
#include "openvswitch/vlog.h"
#include "ovs-rcu.h"
#include "util.h"

/* Clocks. */

uint64_t
bench_clock(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
    return ts.tv_sec * UINT64_C(1000000000) + ts.tv_nsec;
}

/* What it takes to read the clock. */
static uint64_t clock_ns;

static void
calibrate_clock(void)
{
    double ns[1000];

    for (size_t i = 0; i < ARRAY_SIZE(ns); i++) {
        uint64_t start = bench_clock();

        ns[i] = bench_clock() - start;
    }
    clock_ns = bench_quantile(ns, ARRAY_SIZE(ns), 0.5);
}

static bool count_all;         /* Windows count though they are spoilt. */

void
bench_watch_start(struct bench_watch *watch)
{
    watch->switches = bench_switches();
    watch->start = bench_clock();
}

double
bench_watch_stop(const struct bench_watch *watch)
{
    double ns = bench_clock() - watch->start;

    return bench_switches() == watch->switches || count_all ? ns : -1;
}

/* The processors that the program may use. */
static cpu_set_t all_cpus;

void
bench_pin(unsigned int i)
{
    cpu_set_t one;
    int cpu = -1;

    /* From the second one on: the first one often has the interrupts. */
    for (i = (i + 1) % bench_n_cpus() + 1; i; i--) {
        do {
            cpu++;
        } while (!CPU_ISSET(cpu, &all_cpus));
    }
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one)) {
        ovs_fatal(errno, "sched_setaffinity");
    }
}

unsigned int
bench_n_cpus(void)
{
    return CPU_COUNT(&all_cpus);
}

/* Output. */

void
bench_print_ratio(const char *figure, bool control, double subject,
                  double reference, const char *unit)
{
    printf("{\"figure\": \"%s\", %s\"subject\": %.4g, \"reference\": %.4g, "
           "\"unit\": \"%s\"}\n", figure, control ? "\"control\": true, " : "",
           subject, reference, unit);
}

void
bench_print_value(const char *figure, double value, const char *unit)
{
    printf("{\"figure\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"}\n",
           figure, value, unit);
}

void
bench_print_lacking(const char *figure, const char *why)
{
    printf("{\"figure\": \"%s\", \"lacking\": \"%s\"}\n", figure, why);
}

void
bench_print_point(const char *series, const char *label, double x, double y,
                  const char *unit)
{
    printf("{\"series\": \"%s\", \"label\": \"%s\", \"x\": %.10g, "
           "\"y\": %.4g, \"unit\": \"%s\"}\n", series, label, x, y, unit);
}

static int
compare_doubles(const void *a_, const void *b_)
{
    const double *a = a_, *b = b_;

    return *a < *b ? -1 : *a > *b;
}

double
bench_quantile(double values[], size_t n, double q)
{
    qsort(values, n, sizeof *values, compare_doubles);
    return values[MIN(n - 1, (size_t) (q * n))];
}

void
bench_print_median(const char *series, const char *label,
                   const struct bench_workload *w)
{
    if (w->n_samples) {
        bench_print_point(series, label, w->x,
                          bench_quantile(w->samples, w->n_samples, 0.5),
                          "ns");
    }
}

/* Rounds. */

/* Where many windows do not count, there are so many times more of them. */
#define MAX_TRIES 3

/* Returns ns. */
static double
run_window(struct bench_workload *w)
{
    uint64_t ns = 0;

    for (size_t i = 0; i < MAX(w->n_stretches, 1); i++) {
        uint64_t start, end;

        if (w->prepare) {
            w->prepare(w->aux);
        }
        start = bench_clock();
        w->run(w->aux);
        end = bench_clock();
        ns += end - start - MIN(clock_ns, end - start);
        if (w->finish) {
            w->finish(w->aux);
        }
    }
    return ns;
}

/* Warms up, runs a window of 'w', and notes the result.  It does not count if
 * another thread has used the caches since the warming up began. */
static void
measure(struct bench_workload *w)
{
    long int switches = bench_switches();
    double ns;

    for (size_t i = 0; i < w->n_warm; i++) {
        run_window(w);
    }
    ns = run_window(w);
    if (bench_switches() != switches && !count_all) {
        ns = -1;
    }

    w->ns = ns / (w->units ? w->units : BENCH_WINDOW);
    if (ns >= 0) {
        if (w->n_samples == w->allocated_samples) {
            w->samples = x2nrealloc(w->samples, &w->allocated_samples,
                                    sizeof *w->samples);
        }
        w->samples[w->n_samples++] = w->ns;
    }
}

void
bench_rounds(struct bench_workload w[], size_t n,
             const struct bench_figure figures[], size_t n_figures,
             size_t n_rounds)
{
    bool *printed = xcalloc(n_figures + 1, sizeof *printed);
    size_t n_complete = 0;

    for (size_t round = 0;
         n_complete < n_rounds && round < MAX_TRIES * n_rounds; round++) {
        bool complete = true;

        for (size_t i = 0; i < n; i++) {
            measure(&w[round % 2 ? n - 1 - i : i]);
        }
        for (size_t i = 0; i < n_figures; i++) {
            const struct bench_figure *f = &figures[i];

            if (f->subject->ns >= 0 && f->reference->ns >= 0) {
                bench_print_ratio(f->name, f->control, f->subject->ns,
                                  f->reference->ns, "ns");
                printed[i] = true;
            } else {
                complete = false;
            }
        }
        n_complete += complete;
        ovsrcu_quiesce();
    }
    for (size_t i = 0; i < n_figures; i++) {
        if (!printed[i] && !figures[i].control) {
            bench_print_lacking(figures[i].name, "each round was disturbed");
        }
    }
    free(printed);
    fflush(stdout);
}

void
bench_workload_destroy(struct bench_workload *w)
{
    free(w->samples);
    w->samples = NULL;
    w->n_samples = w->allocated_samples = 0;
}

void
bench_steady(struct bench_workload *w, size_t n_warm, size_t n_windows)
{
    for (size_t i = 0; i < n_warm; i++) {
        run_window(w);
        ovsrcu_quiesce();
    }
    for (size_t i = 0; i < n_windows; i++) {
        measure(w);
        ovsrcu_quiesce();
    }
}

size_t
bench_choose(enum bench_effort effort, size_t smoke, size_t quick,
             size_t normal)
{
    return (effort == BENCH_SMOKE ? smoke
            : effort == BENCH_QUICK ? quick : normal);
}

/* Main program. */

static const struct part {
    const char *name;
    void (*run)(enum bench_effort);
} parts[] = {
    { "translate", bench_translate },
    { "sizes", bench_sizes },
    { "held", bench_held },
    { "insert", bench_insert },
    { "aging", bench_aging },
    { "bytes", bench_bytes },
    { "two-pmds", bench_two_pmds },
    { "aging-delay", bench_aging_delay },
};

static void
usage(void)
{
    printf("usage: %s [--quick | --smoke] [PART...]\n"
           "Prints what the data path and its tables cost, as lines of JSON.\n"
           "PARTs are", program_name);
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        printf(" %s", parts[i].name);
    }
    printf("; by default, all.\n"
           "  --quick   take less than a minute\n"
           "  --smoke   only try whether all works, with few neighbours\n");
    exit(EXIT_SUCCESS);
}

static bool
is_wanted(const struct part *part, int argc, char *argv[])
{
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], part->name)) {
            return true;
        }
    }
    return !argc;
}

static void
check_parts(int argc, char *argv[])
{
    for (int i = 0; i < argc; i++) {
        size_t j = 0;

        while (j < ARRAY_SIZE(parts) && strcmp(argv[i], parts[j].name)) {
            j++;
        }
        if (j == ARRAY_SIZE(parts)) {
            ovs_fatal(0, "%s: no such part (try --help)", argv[i]);
        }
    }
}

int
main(int argc, char *argv[])
{
    static const struct option options[] = {
        { "quick", no_argument, NULL, 'q' },
        { "smoke", no_argument, NULL, 's' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    enum bench_effort effort = BENCH_NORMAL;
    int c;

    set_program_name(argv[0]);
    vlog_set_levels(NULL, VLF_ANY_DESTINATION, VLL_WARN);
    /* Nothing waits for the main thread to quiesce. */
    vlog_set_levels(vlog_module_from_name("ovs_rcu"), VLF_ANY_DESTINATION,
                    VLL_OFF);
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'q':
            effort = BENCH_QUICK;
            break;

        case 's':
            effort = BENCH_SMOKE;
            count_all = true;
            break;

        case 'h':
            usage();
            break;

        default:
            exit(EXIT_FAILURE);
        }
    }
    argc -= optind;
    argv += optind;
    check_parts(argc, argv);

    if (sched_getaffinity(0, sizeof all_cpus, &all_cpus)) {
        ovs_fatal(errno, "sched_getaffinity");
    }
    bench_pin(0);
    calibrate_clock();
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        if (is_wanted(&parts[i], argc, argv)) {
            uint64_t start = bench_clock();

            parts[i].run(effort);
            fprintf(stderr, "%s: %.1f s\n", parts[i].name,
                    (bench_clock() - start) * 1e-9);
        }
    }
    bench_worlds_destroy();
    return 0;
}
