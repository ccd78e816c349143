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

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "ipoib-compat.h"
#include "ipoib-neigh.h"
#include "ipoib-pool.h"
#include "ipoib-rx.h"
#include "ipoib-tx.h"
#include "ovs-atomic.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "timeval.h"
#include "util.h"

/* Two threads on two processors. */

#define N_PMDS 2

/* All of N_PMDS threads wait until the last one is there. */
struct barrier {
    atomic_count n;             /* Threads that came, ever. */
};

static void
barrier_wait(struct barrier *barrier)
{
    unsigned int n = atomic_count_inc(&barrier->n);
    unsigned int goal = n - n % N_PMDS + N_PMDS;

    for (unsigned int i = 0;
         (int) (atomic_count_get(&barrier->n) - goal) < 0; i++) {
        if (i > 1000000) {
            sched_yield();      /* The other one is not running. */
        }
    }
}

/* Two PMDs against two floor programs.
 *
 * Each PMD takes packets from its own receive queue, turns them round as a
 * bridge would (with a destination MAC that is another neighbour's), and sends
 * them by its own transmit queue; tables and the pool of buffers are the
 * port's, which is what could come between the two.  Here all is measured, the
 * pool too.  Each floor program does what bench-micro-floor.c says, for both
 * directions, in memory of its own.
 *
 * How much two get done at a time, against each alone, is then compared
 * between the two kinds: what processors take from each other by sharing
 * caches, memory and power is in both. */

enum { OURS, FLOOR, N_KINDS };

static const struct step {
    int kind;
    unsigned int pmds;          /* Bit mask of those that run. */
} steps[] = {
    { FLOOR, 1 }, { OURS, 1 }, { FLOOR, 2 }, { OURS, 2 }, { FLOOR, 3 },
    { OURS, 3 }, { FLOOR, 1 }, { FLOOR, 2 }, { FLOOR, 3 },
};
enum { FLOOR_STEP, OURS_STEP = FLOOR_STEP + 1, CONTROL_STEP = 6 };

struct pmd {
    unsigned int id;
    struct pmds *pmds;

    /* OURS. */
    struct bench_rx *rx;
    struct ipoib_txq *txq;
    struct eth_addr to[BENCH_WINDOW]; /* New destinations. */
    struct bench_random random;
    uint64_t sent;

    /* FLOOR. */
    struct bench_floor_rx *floor_rx;
    struct bench_floor_tx *floor_tx;
    struct bench_workload floor_loads[2];

    double ns[ARRAY_SIZE(steps)];
};

struct pmds {
    struct bench_world *world;
    struct ipoib_pool *pool;
    struct barrier barrier;
    struct pmd pmds[N_PMDS];
    size_t n_rounds;
};

static void
pmd_prepare(struct pmd *pmd, int kind)
{
    if (kind == FLOOR) {
        for (size_t i = 0; i < 2; i++) {
            pmd->floor_loads[i].prepare(pmd->floor_loads[i].aux);
        }
        return;
    }
    bench_rx_prepare(pmd->rx);
    for (size_t i = 0; i < BENCH_WINDOW; i++) {
        const struct bench_world *world = pmd->pmds->world;

        pmd->to[i] = world->macs[bench_random_below(&pmd->random, world->n)];
    }
}

static void
pmd_run(struct pmd *pmd, int kind)
{
    if (kind == FLOOR) {
        for (size_t i = 0; i < 2; i++) {
            pmd->floor_loads[i].run(pmd->floor_loads[i].aux);
        }
        return;
    }
    for (size_t i = 0; i < BENCH_N_BURSTS; i++) {
        struct dp_packet_batch *batch = &pmd->rx->batches[i];
        const struct eth_addr *to = &pmd->to[i * BENCH_BURST];
        struct dp_packet *packet;

        ipoib_rx_batch(pmd->rx->rxq, batch);
        DP_PACKET_BATCH_FOR_EACH (j, packet, batch) {
            struct eth_header *eth = dp_packet_data(packet);

            eth->eth_src = eth->eth_dst;
            eth->eth_dst = to[j];
        }
        ipoib_tx_batch(pmd->txq, batch);
    }
}

static void
pmd_finish(struct pmd *pmd, int kind)
{
    if (kind == FLOOR) {
        for (size_t i = 0; i < 2; i++) {
            pmd->floor_loads[i].finish(pmd->floor_loads[i].aux);
        }
        return;
    }
    pmd->sent += BENCH_WINDOW;
    ovs_assert(ipoib_counter_read(&pmd->txq->stats.packets) == pmd->sent);
    ovs_assert(ipoib_counter_read(&pmd->rx->rxq->stats.packets)
               == pmd->sent);
    bench_discard(pmd->txq->to_control);
    bench_discard(pmd->rx->rxq->to_control);
}

static void
pmd_step(struct pmd *pmd, size_t i)
{
    const struct step *step = &steps[i];
    bool runs = step->pmds & (1u << pmd->id);
    struct bench_watch watch;

    if (runs) {
        pmd_prepare(pmd, step->kind);
    }
    bench_watch_start(&watch);
    barrier_wait(&pmd->pmds->barrier);
    if (runs) {
        watch.start = bench_clock();
        pmd_run(pmd, step->kind);
        pmd->ns[i] = bench_watch_stop(&watch);
        pmd_finish(pmd, step->kind);
    }
    barrier_wait(&pmd->pmds->barrier);
}

/* Stores in '*scaling' how many times what one does both do at a time: of the
 * steps alone0, alone1, both.  Returns false if a window does not count. */
static bool
scaling_of(const struct pmds *pmds, size_t alone0, size_t alone1, size_t both,
           double *scaling)
{
    const double *ns[N_PMDS] = { pmds->pmds[0].ns, pmds->pmds[1].ns };

    if (ns[0][alone0] < 0 || ns[1][alone1] < 0 || ns[0][both] < 0
        || ns[1][both] < 0) {
        return false;
    }
    *scaling = ns[0][alone0] / ns[0][both] + ns[1][alone1] / ns[1][both];
    return true;
}

static void
print_round(const struct pmds *pmds)
{
    double ours, floor, control;
    bool have_floor = scaling_of(pmds, FLOOR_STEP, FLOOR_STEP + 2,
                                 FLOOR_STEP + 4, &floor);

    if (have_floor && scaling_of(pmds, OURS_STEP, OURS_STEP + 2,
                                 OURS_STEP + 4, &ours)) {
        bench_print_ratio("two-pmds", false, ours, floor, "PMDs");
    }
    if (have_floor && scaling_of(pmds, CONTROL_STEP, CONTROL_STEP + 1,
                                 CONTROL_STEP + 2, &control)) {
        bench_print_ratio("two-pmds", true, control, floor, "PMDs");
    }
}

static void *
pmd_main(void *pmd_)
{
    struct pmd *pmd = pmd_;
    struct pmds *pmds = pmd->pmds;

    bench_pin(pmd->id);
    for (size_t round = 0; round < pmds->n_rounds; round++) {
        for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
            pmd_step(pmd, round % 2 ? ARRAY_SIZE(steps) - 1 - i : i);
        }
        if (!pmd->id && round) {
            print_round(pmds);
        }
        ovsrcu_quiesce();
    }
    return NULL;
}

static void
pmd_create(struct pmds *pmds, unsigned int id)
{
    struct pmd *pmd = &pmds->pmds[id];

    pmd->id = id;
    pmd->pmds = pmds;
    pmd->rx = bench_rx_create(pmds->world, pmds->pool, 2 * BENCH_WINDOW,
                              BENCH_IP_LEN);
    pmd->txq = bench_txq_create(pmds->world);
    pmd->random = (struct bench_random) { pmd->rx->random.state + id };
    pmd->floor_rx = bench_floor_rx_create(2 * BENCH_WINDOW);
    pmd->floor_tx = bench_floor_tx_create(2 * BENCH_WINDOW, 0);
    pmd->floor_loads[0] = bench_floor_rx_workload(pmd->floor_rx);
    pmd->floor_loads[1] = bench_floor_tx_workload(pmd->floor_tx);
}

static void
pmd_destroy(struct pmd *pmd)
{
    ipoib_txq_destroy(pmd->txq);
    bench_rx_destroy(pmd->rx);
    bench_floor_rx_destroy(pmd->floor_rx);
    bench_floor_tx_destroy(pmd->floor_tx);
}

void
bench_two_pmds(enum bench_effort effort)
{
    struct pmds *pmds;
    pthread_t thread;

    if (bench_n_cpus() < N_PMDS) {
        bench_print_lacking("two-pmds", "there is only one processor");
        return;
    }
    pmds = xzalloc(sizeof *pmds);
    pmds->n_rounds = bench_choose(effort, 4, 800, 4000);
    pmds->world = bench_world_get(1000);
    pmds->pool = ipoib_pool_create(&bench_verbs, &pmds->world->device->pd,
                                   N_PMDS * 2 * BENCH_WINDOW + 2048, 2048,
                                   -1);
    for (unsigned int i = 0; i < N_PMDS; i++) {
        pmd_create(pmds, i);
    }
    thread = ovs_thread_create("pmd", pmd_main, &pmds->pmds[1]);
    pmd_main(&pmds->pmds[0]);
    xpthread_join(thread, NULL);
    for (unsigned int i = 0; i < N_PMDS; i++) {
        pmd_destroy(&pmds->pmds[i]);
    }
    ipoib_pool_detach(pmds->pool);
    free(pmds);
}

/* No packet waits for aging: how long a burst takes on one processor while
 * ipoib_neigh_age() goes round and round on another one, and while nothing
 * does.  The bursts are those of the transmit direction, to a million
 * neighbours. */

#define AGE_BUDGET 16384

enum { QUIET, AGING, N_MODES };

struct delay {
    struct bench_world *world;
    struct bench_tx *tx;
    struct barrier barrier;
    atomic_bool done;           /* The window is over. */
    size_t n_windows;
    double *ns[N_MODES];        /* Of bursts. */
    size_t n[N_MODES];
};

/* Runs a window and notes how long each burst takes, if the window counts. */
static void
delay_window(struct delay *delay, int mode)
{
    struct bench_workload w = bench_tx_workload(delay->tx);
    double *ns = &delay->ns[mode][delay->n[mode]];
    struct bench_watch watch;

    w.prepare(w.aux);
    barrier_wait(&delay->barrier);
    bench_watch_start(&watch);
    for (size_t i = 0; i < BENCH_N_BURSTS; i++) {
        uint64_t start = bench_clock();

        ipoib_tx_batch(delay->tx->txq, &delay->tx->batches[i]);
        ns[i] = bench_clock() - start;
    }
    if (bench_watch_stop(&watch) >= 0) {
        delay->n[mode] += BENCH_N_BURSTS;
    }
    atomic_store(&delay->done, true);
    w.finish(w.aux);
    barrier_wait(&delay->barrier);
}

static void *
delay_main(void *delay_)
{
    struct delay *delay = delay_;

    bench_pin(0);
    for (size_t i = 0; i < delay->n_windows; i++) {
        delay_window(delay, i % N_MODES);
        ovsrcu_quiesce();
    }
    return NULL;
}

/* The other thread's part in a window. */
static void
delay_age(struct delay *delay, int mode)
{
    bool done;

    atomic_store(&delay->done, false);
    barrier_wait(&delay->barrier);
    do {
        if (mode == AGING) {
            bench_age(delay->world, AGE_BUDGET);
        }
        atomic_read(&delay->done, &done);
    } while (!done);
    barrier_wait(&delay->barrier);
}

static void
delay_print(struct delay *delay)
{
    static const double quantiles[] = { 50, 99, 99.9, 100 };
    static const char *labels[N_MODES] = { "quiet", "aging" };

    for (int mode = 0; mode < N_MODES; mode++) {
        for (size_t i = 0; delay->n[mode] && i < ARRAY_SIZE(quantiles); i++) {
            bench_print_point("aging-delay", labels[mode], quantiles[i],
                              bench_quantile(delay->ns[mode], delay->n[mode],
                                             quantiles[i] / 100), "ns");
        }
    }
}

void
bench_aging_delay(enum bench_effort effort)
{
    struct delay delay = {
        .n_windows = bench_choose(effort, 4, 1000, 8000),
        .world = bench_world_get(bench_choose(effort, 1000, 1000000,
                                                 1000000)),
    };
    pthread_t thread;

    if (bench_n_cpus() < N_PMDS) {
        fprintf(stderr, "aging-delay: there is only one processor\n");
        return;
    }
    delay.tx = bench_tx_create(delay.world, 2 * BENCH_WINDOW, BENCH_IP_LEN,
                               true);
    for (int mode = 0; mode < N_MODES; mode++) {
        delay.ns[mode] = xcalloc((delay.n_windows + 1) * BENCH_N_BURSTS,
                                 sizeof *delay.ns[mode]);
    }
    thread = ovs_thread_create("pmd", delay_main, &delay);
    bench_pin(1);
    for (size_t i = 0; i < delay.n_windows; i++) {
        delay_age(&delay, i % N_MODES);
        ovsrcu_quiesce();
    }
    xpthread_join(thread, NULL);
    bench_pin(0);
    delay_print(&delay);
    for (int mode = 0; mode < N_MODES; mode++) {
        free(delay.ns[mode]);
    }
    bench_tx_destroy(delay.tx);
}
