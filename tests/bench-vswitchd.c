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
#include "bench-vswitchd.h"

#include <errno.h>

#include "bench-clock.h"
#include "dp-packet.h"
#include "dpif-netdev-perf.h"
#include "netdev-ipoib.h"
#include "netdev-provider.h"
#include "openvswitch/dynamic-string.h"
#include "ovs-rcu.h"
#include "timeval.h"
#include "unixctl.h"
#include "util.h"

/* The stopwatch.
 *
 * The PMD thread's loop calls netdev_rxq_recv() for each receive queue in
 * turn; the linker redirects that to __wrap_netdev_rxq_recv().  What a turn
 * costs, that is, receiving a burst, classifying it, sending it and flushing,
 * is the time from there to the next queue's call, or to the end of the loop's
 * body, which is pmd_perf_end_iteration().
 *
 * While a run goes on, only the queue whose slot it is has packets, and the
 * others are empty, whatever they are.  Slots of all workloads follow each
 * other, in the reverse order on odd rounds.  So all workloads are those of
 * one thread in one process at practically one time, the order of the ports
 * in the loop does not matter, and what the loop does besides is nobody's.
 *
 * What stands for hardware, that is, making packets up, and the device, is
 * apart from the rest: see 'bench_apart'.
 *
 * A slot is so many turns, after some to warm the caches up, of which the time
 * is taken, or lasts for so long, with packets at a rate, and then latency is
 * taken.  One during which the thread was switched is marked. */

#define WARM_UP 64              /* Turns: twice round a receive queue. */
#define MAX_WORKLOADS 32

struct workload {
    char *name;
    char *port;                 /* Whose queue receives. */
    struct null_port *hca;      /* Of 'port', or NULL. */
    struct bench_load load;
    struct netdev_rxq *rx;      /* NULL: not seen yet. */
    struct bench_hist hist;     /* All latencies. */
};

struct window {
    uint32_t workload;
    bool switched;
    uint64_t packets;
    uint64_t cycles;            /* Of them, */
    uint64_t apart;             /* see 'bench_apart'. */
    uint64_t dropped;
    double quantiles[3];        /* Cycles. */
};

static const double quantiles[] = { 0.5, 0.99, 0.999 };

struct run {
    struct workload workloads[MAX_WORKLOADS];
    size_t n_workloads;
    uint32_t n_rounds;
    uint32_t turns;             /* Of a slot; 0: it lasts */
    uint64_t duration;          /* so many cycles. */

    struct window *windows;     /* 'n_rounds' times 'n_workloads'. */
    size_t n_windows;           /* Done. */
    atomic_bool over;

    /* The present slot. */
    struct workload *w;
    bool started;
    uint32_t turn;
    uint64_t since;             /* The turn's begin, 0: none goes on. */
    uint64_t end;               /* Of a slot that lasts a while. */
    uint64_t packets, turn_packets, cycles, apart, turn_apart, dropped;
    long switches;
    struct bench_hist hist;
};

/* Outside runs: the ports that have packets.  A rate is that of a generator's
 * packets, or else, how often the port is polled. */
struct open_ports {
    size_t n;
    struct {
        char *name;
        struct bench_load load;
        /* PMD thread. */
        bool set, is_ours;
        uint64_t polled;        /* The last time. */
    } ports[];
};

struct bench_hist *bench_hist;
__thread uint64_t bench_apart;
static OVSRCU_TYPE(struct run *) current; /* NULL: none. */
static OVSRCU_TYPE(struct open_ports *) open_ports;
static struct run *last;        /* Main thread. */
static uint64_t clock_tsc;      /* Both at the start of the daemon. */
static long long int clock_usec;

int __real_netdev_rxq_recv(struct netdev_rxq *, struct dp_packet_batch *,
                           int *qfill);
int __wrap_netdev_rxq_recv(struct netdev_rxq *, struct dp_packet_batch *,
                           int *qfill);
__typeof__(pmd_perf_end_iteration) __real_pmd_perf_end_iteration;
__typeof__(pmd_perf_end_iteration) __wrap_pmd_perf_end_iteration;
void __real_bridge_init(const char *remote);
void __wrap_bridge_init(const char *remote);

/* Cycles a second. */
static double
frequency(void)
{
    return (double) (bench_now() - clock_tsc)
           / MAX(1, time_usec() - clock_usec) * 1e6;
}

/* Histograms: 2**BENCH_HIST_BITS buckets for each power of 2. */

static size_t
hist_bucket(uint64_t value)
{
    int shift = (value >> BENCH_HIST_BITS
                 ? log_2_floor(value) - BENCH_HIST_BITS : 0);

    return MIN(((size_t) shift << BENCH_HIST_BITS) + (value >> shift),
               BENCH_HIST_MAX - 1);
}

uint64_t
bench_hist_value(size_t i)
{
    size_t shift = i >> BENCH_HIST_BITS;

    if (shift <= 1) {
        return i;
    }
    return ((i - ((shift - 1) << BENCH_HIST_BITS) + 1) << (shift - 1)) - 1;
}

void
bench_hist_add(struct bench_hist *h, uint64_t value)
{
    h->n++;
    h->buckets[hist_bucket(value)]++;
}

void
bench_hist_merge(struct bench_hist *to, const struct bench_hist *from)
{
    to->n += from->n;
    for (size_t i = 0; i < BENCH_HIST_MAX; i++) {
        to->buckets[i] += from->buckets[i];
    }
}

double
bench_hist_quantile(const struct bench_hist *h, double part)
{
    double left = part * h->n;

    for (size_t i = 0; i < BENCH_HIST_MAX; i++) {
        uint32_t n = h->buckets[i];

        if (n && left <= n) {
            /* Somewhere within the bucket. */
            uint64_t low = i ? bench_hist_value(i - 1) + 1 : 0;

            return low + (bench_hist_value(i) - low) * left / n;
        }
        left -= n;
    }
    return 0;
}

/* Slots.  PMD thread. */

static uint64_t
dropped(const struct workload *w)
{
    return (w->hca ? bench_hca_dropped(w->hca)
            : w->rx ? bench_netdev_dropped(w->rx->netdev) : 0);
}

/* The workload of slot 'i'. */
static struct workload *
slot_workload(struct run *r, size_t i)
{
    size_t round = i / r->n_workloads, pos = i % r->n_workloads;

    return &r->workloads[round % 2 ? r->n_workloads - 1 - pos : pos];
}

static void
set_load(struct workload *w)
{
    if (w->hca) {
        bench_hca_set_load(w->hca, &w->load);
    } else {
        bench_netdev_set_load(w->rx->netdev, &w->load);
    }
}

static void
slot_start(struct run *r)
{
    set_load(r->w);
    r->started = true;
    r->turn = 0;
    r->packets = r->cycles = r->apart = 0;
    r->dropped = dropped(r->w);
    memset(&r->hist, 0, sizeof r->hist);
    bench_hist = r->turns ? NULL : &r->hist;
    r->switches = bench_switches();
    r->end = bench_now() + r->duration;
}

static void
slot_end(struct run *r)
{
    struct window *window = &r->windows[r->n_windows++];

    window->workload = r->w - r->workloads;
    window->switched = bench_switches() != r->switches;
    window->packets = r->packets;
    window->cycles = r->cycles;
    window->apart = r->apart;
    window->dropped = dropped(r->w) - r->dropped;
    if (!r->turns) {
        for (size_t i = 0; i < ARRAY_SIZE(quantiles); i++) {
            window->quantiles[i] = bench_hist_quantile(&r->hist, quantiles[i]);
        }
        bench_hist_merge(&r->w->hist, &r->hist);
    }
    r->started = false;
    if (r->n_windows == r->n_rounds * r->n_workloads) {
        bench_hist = NULL;
        r->w = NULL;
        atomic_store_explicit(&r->over, true, memory_order_release);
    } else {
        r->w = slot_workload(r, r->n_windows);
    }
}

static void
turn_end(struct run *r, uint64_t now)
{
    r->turn++;
    if (!r->turns || r->turn > WARM_UP) {
        r->cycles += now - r->since;
        r->apart += bench_apart - r->turn_apart;
        r->packets += r->turn_packets;
    } else if (r->turn == WARM_UP) {
        r->switches = bench_switches();
    }
    r->since = 0;
    if (r->turns ? r->turn >= r->turns + WARM_UP : now >= r->end) {
        slot_end(r);
    }
}

static int
run_recv(struct run *r, struct netdev_rxq *rx, struct dp_packet_batch *batch,
         int *qfill)
{
    struct workload *w;
    int error;

    if (r->since) {
        turn_end(r, bench_now());
    }
    w = r->w;
    if (!w) {
        return EAGAIN;
    }
    if (OVS_UNLIKELY(!w->rx)
        && !strcmp(w->port, netdev_get_name(rx->netdev))) {
        w->rx = rx;
    }
    if (rx != w->rx) {
        return EAGAIN;
    }
    if (OVS_UNLIKELY(!r->started)) {
        slot_start(r);
    }
    r->turn_apart = bench_apart;
    r->since = bench_now();
    error = __real_netdev_rxq_recv(rx, batch, qfill);
    r->turn_packets = error ? 0 : dp_packet_batch_size(batch);
    return error;
}

/* No run: ports are open or not. */
static bool
is_open(struct netdev_rxq *rx)
{
    struct open_ports *open = ovsrcu_get(struct open_ports *, &open_ports);
    const char *name = netdev_get_name(rx->netdev);

    for (size_t i = 0; open && i < open->n; i++) {
        uint64_t now;

        if (strcmp(open->ports[i].name, name)) {
            continue;
        }
        if (!open->ports[i].set) {
            open->ports[i].is_ours
                = bench_netdev_set_load(rx->netdev, &open->ports[i].load);
            open->ports[i].set = true;
        }
        now = bench_now();
        if (!open->ports[i].is_ours
            && now - open->ports[i].polled < open->ports[i].load.interval) {
            return false;
        }
        open->ports[i].polled = now;
        return true;
    }
    return false;
}

int
__wrap_netdev_rxq_recv(struct netdev_rxq *rx, struct dp_packet_batch *batch,
                       int *qfill)
{
    struct run *r;

    if (!netdev_is_pmd(rx->netdev)) {
        return __real_netdev_rxq_recv(rx, batch, qfill);
    }
    r = ovsrcu_get(struct run *, &current);
    if (r) {
        return run_recv(r, rx, batch, qfill);
    }
    return (is_open(rx) ? __real_netdev_rxq_recv(rx, batch, qfill) : EAGAIN);
}

void
__wrap_pmd_perf_end_iteration(struct pmd_perf_stats *s, int rx_packets,
                              int tx_packets, uint64_t sleep_cycles,
                              bool full_metrics)
{
    struct run *r = ovsrcu_get(struct run *, &current);

    if (r && r->since) {
        turn_end(r, bench_now());
    }
    __real_pmd_perf_end_iteration(s, rx_packets, tx_packets, sleep_cycles,
                                  full_metrics);
}

/* Commands.  Main thread. */

/* Replies with 'error', if there is one, which is freed, or else with
 * 'text'. */
static void
reply(struct unixctl_conn *conn, char *error, const char *text)
{
    if (error) {
        unixctl_command_reply_error(conn, error);
        free(error);
    } else {
        unixctl_command_reply(conn, text);
    }
}

static void
free_open(struct open_ports *open)
{
    for (size_t i = 0; i < open->n; i++) {
        free(open->ports[i].name);
    }
    free(open);
}

static void
set_open(struct open_ports *new)
{
    struct open_ports *old = ovsrcu_get_protected(struct open_ports *,
                                                  &open_ports);

    ovsrcu_set(&open_ports, new);
    if (old) {
        ovsrcu_postpone(free_open, old);
    }
}

/* bench/open [PORT[:RATE]]... */
static void
bench_open(struct unixctl_conn *conn, int argc, const char *argv[],
           void *aux OVS_UNUSED)
{
    size_t n = argc - 1;
    struct open_ports *open = xzalloc(sizeof *open
                                      + n * sizeof open->ports[0]);

    for (open->n = 0; open->n < n; open->n++) {
        char *name = xstrdup(argv[1 + open->n]);
        char *rate = strchr(name, ':');

        if (rate) {
            *rate++ = '\0';
            open->ports[open->n].load.interval = frequency() / atof(rate);
        }
        open->ports[open->n].load.size = 64;
        open->ports[open->n].name = name;
    }
    set_open(open);
    unixctl_command_reply(conn, NULL);
}

/* bench/pool PORT */
static void
bench_make_pool(struct unixctl_conn *conn, int argc OVS_UNUSED,
                const char *argv[], void *aux OVS_UNUSED)
{
    reply(conn, bench_hca_make_pool(argv[1]), NULL);
}

/* bench/aim PORT SOURCE [ready] */
static void
bench_aim(struct unixctl_conn *conn, int argc, const char *argv[],
          void *aux OVS_UNUSED)
{
    size_t n = 0, ready = 0, hosts = 0;
    char *error = bench_hca_aim(argv[1], argv[2], argc > 3, &n, &ready,
                                &hosts);
    char *text = xasprintf("%"PRIuSIZE" %"PRIuSIZE" %"PRIuSIZE, n, ready,
                           hosts);

    reply(conn, error, text);
    free(text);
}

/* bench/take PORT */
static void
bench_take(struct unixctl_conn *conn, int argc OVS_UNUSED, const char *argv[],
           void *aux OVS_UNUSED)
{
    set_open(NULL);
    ovsrcu_synchronize();       /* No PMD thread is in a queue. */
    reply(conn, bench_hca_take(argv[1]), NULL);
}

static void
free_run(struct run *r)
{
    for (size_t i = 0; r && i < r->n_workloads; i++) {
        free(r->workloads[i].name);
        free(r->workloads[i].port);
    }
    if (r) {
        free(r->windows);
        free_cacheline(r);
    }
}

/* NAME:PORT:SIZE */
static char *
parse_workload(struct workload *w, const char *arg, uint64_t interval)
{
    char *copy = xstrdup(arg), *save_ptr = NULL;
    const char *name = strtok_r(copy, ":", &save_ptr);
    const char *port = strtok_r(NULL, ":", &save_ptr);
    const char *size = strtok_r(NULL, ":", &save_ptr);
    char *error = NULL;

    if (!size || atoi(size) < BENCH_MIN_SIZE || atoi(size) > 4092) {
        error = xasprintf("%s: not NAME:PORT:SIZE", arg);
    } else {
        w->name = xstrdup(name);
        w->port = xstrdup(port);
        w->hca = bench_hca_find(port);
        w->load.size = atoi(size);
        w->load.interval = interval;
    }
    free(copy);
    return error;
}

/* bench/run ROUNDS TURNS WORKLOAD..., or
 * bench/latency ROUNDS MSEC PACKETS-A-SECOND WORKLOAD... */
static void
bench_run(struct unixctl_conn *conn, int argc, const char *argv[],
          void *latency)
{
    int first = latency ? 4 : 3;
    int n = argc - first;
    uint64_t interval = latency ? frequency() / atof(argv[3]) : 0;
    struct run *r = xzalloc_cacheline(sizeof *r);
    char *error = NULL;

    atomic_init(&r->over, false);
    r->n_rounds = atoi(argv[1]);
    r->turns = latency ? 0 : atoi(argv[2]);
    r->duration = latency ? frequency() * atof(argv[2]) / 1000 : 0;
    if (ovsrcu_get(struct run *, &current)) {
        error = xstrdup("another run goes on");
    } else if (n < 1 || n > MAX_WORKLOADS || !r->n_rounds
               || (!r->turns && !r->duration)) {
        error = xstrdup("bad number of rounds, turns or workloads");
    }
    for (int i = 0; i < n && !error; i++) {
        r->n_workloads++;
        error = parse_workload(&r->workloads[i], argv[first + i], interval);
    }
    if (error) {
        free_run(r);
    } else {
        r->windows = xcalloc(r->n_rounds * r->n_workloads,
                             sizeof *r->windows);
        /* So that the PMD thread does not have to wait for pages. */
        memset(r->windows, 0,
               r->n_rounds * r->n_workloads * sizeof *r->windows);
        r->w = slot_workload(r, 0);
        free_run(last);
        last = r;
        ovsrcu_set(&current, r);
    }
    reply(conn, error, NULL);
}

/* Waits for nothing.  "running", or ends the run and says "done". */
static void
bench_status(struct unixctl_conn *conn, int argc OVS_UNUSED,
             const char *argv[] OVS_UNUSED, void *aux OVS_UNUSED)
{
    struct run *r = ovsrcu_get(struct run *, &current);
    bool over = true;

    if (r) {
        atomic_read_explicit(&r->over, &over, memory_order_acquire);
        if (over) {
            ovsrcu_set(&current, NULL);
            ovsrcu_synchronize();
        }
    }
    unixctl_command_reply(conn, over ? "done" : "running");
}

static void
put_window(FILE *stream, const struct run *r, const struct window *window,
           double nsec)
{
    fprintf(stream, "window %s %d %"PRIu64" %.1f %.1f %"PRIu64,
            r->workloads[window->workload].name, window->switched,
            window->packets, window->cycles * nsec, window->apart * nsec,
            window->dropped);
    for (size_t i = 0; i < ARRAY_SIZE(quantiles); i++) {
        fprintf(stream, " %.1f", window->quantiles[i] * nsec);
    }
    putc('\n', stream);
}

/* The latencies of a workload, up to one in a million. */
static void
put_hist(FILE *stream, const struct workload *w, double nsec)
{
    uint64_t left = w->hist.n;

    for (size_t i = 0; i < BENCH_HIST_MAX && left; i++) {
        if (w->hist.buckets[i]) {
            left -= w->hist.buckets[i];
            fprintf(stream, "hist %s %.1f %.9f\n", w->name,
                    bench_hist_value(i) * nsec, (double) left / w->hist.n);
        }
    }
}

/* bench/result FILE: writes
 *
 *     window NAME SWITCHED PACKETS NS APART DROPPED P50 P99 P999   for each
 *     hist NAME NS PART-ABOVE
 */
static void
bench_result(struct unixctl_conn *conn, int argc OVS_UNUSED,
             const char *argv[], void *aux OVS_UNUSED)
{
    double nsec = 1e9 / frequency();
    char *error = NULL;
    FILE *stream;

    if (!last || ovsrcu_get(struct run *, &current)) {
        error = xstrdup("no run is done");
    } else if (!(stream = fopen(argv[1], "w"))) {
        error = xasprintf("%s: %s", argv[1], ovs_strerror(errno));
    } else {
        for (size_t i = 0; i < last->n_windows; i++) {
            put_window(stream, last, &last->windows[i], nsec);
        }
        for (size_t i = 0; i < last->n_workloads; i++) {
            put_hist(stream, &last->workloads[i], nsec);
        }
        if (fclose(stream)) {
            error = xasprintf("%s: %s", argv[1], ovs_strerror(errno));
        }
    }
    reply(conn, error, NULL);
}

/* See vswitchd/ipoib-init.c. */
void
__wrap_bridge_init(const char *remote)
{
    clock_tsc = bench_now();
    clock_usec = time_usec();
    netdev_ipoib_register();
    bench_netdev_register();
    unixctl_command_register("bench/open", "[PORT[:RATE]]...", 0, INT_MAX,
                             bench_open, NULL);
    unixctl_command_register("bench/pool", "PORT", 1, 1, bench_make_pool,
                             NULL);
    unixctl_command_register("bench/aim", "PORT SOURCE [ready]", 2, 3,
                             bench_aim, NULL);
    unixctl_command_register("bench/take", "PORT", 1, 1, bench_take, NULL);
    unixctl_command_register("bench/run", "ROUNDS TURNS WORKLOAD...", 3,
                             INT_MAX, bench_run, NULL);
    unixctl_command_register("bench/latency", "ROUNDS MSEC PPS WORKLOAD...",
                             4, INT_MAX, bench_run, &current);
    unixctl_command_register("bench/status", "", 0, 0, bench_status, NULL);
    unixctl_command_register("bench/result", "FILE", 1, 1, bench_result,
                             NULL);
    __real_bridge_init(remote);
}
