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

#include <stdlib.h>

#include "util.h"

/* Translate, look up, post: ipoib_tx_batch() and ipoib_rx_batch() against the
 * floors of bench-micro-floor.c, and against themselves with more neighbours
 * or longer packets.
 *
 * What is in the time of ours: all that ipoib_tx_batch() and ipoib_rx_batch()
 * do, and what the driver of the device does (bench-micro-device.c), that is
 * what the floor does, whose descriptors are the same.  A receive includes
 * that a buffer of the pool takes the place of the one that was delivered.
 *
 * What is not: what OVS has done before, that is, frames to be sent were just
 * written, and batches are ready; and releasing packets, which is a matter of
 * the pool.  That is measured as well, in the series "with-release".
 *
 * Packets are frames of 64 bytes from 16 hosts; each is to or from a
 * neighbour that is drawn at random from all of them. */

/* Buffers: as many as a queue of the gateway has by default.  The headers,
 * what OVS keeps of each packet (in a build with DPDK, three or four lines),
 * the tables and address handles of a thousand neighbours, and the descriptors
 * are some 700 kB, so that they are in an L2 cache of 1 MB. */
#define N_L2 1024
/* So many that headers are in the L3 cache, at best. */
#define N_L3 65536

/* Workloads by neighbours. */
#define N_COUNTS 5
static const size_t counts[N_COUNTS] = { 1, 1000, 10000, 100000, 1000000 };
#define COUNT_1K 1
#define COUNT_1M 4

struct worlds {
    struct bench_world *worlds[N_COUNTS];
    struct bench_tx *tx[N_COUNTS];
    struct bench_rx *rx[N_COUNTS];
    struct bench_driver *send[N_COUNTS], *receive[N_COUNTS];
    struct bench_cmap *cmaps[N_COUNTS];
    struct bench_floor_tx *floors[N_COUNTS]; /* With a line more. */
};

static void
worlds_create(struct worlds *w, enum bench_effort effort)
{
    for (size_t i = 0; i < N_COUNTS; i++) {
        size_t n = MIN(counts[i], bench_choose(effort, 1000, 1000000,
                                               1000000));

        w->worlds[i] = bench_world_get(n);
        w->tx[i] = bench_tx_create(w->worlds[i], N_L2, BENCH_IP_LEN, true);
        w->rx[i] = bench_rx_create(w->worlds[i], NULL, N_L2, BENCH_IP_LEN);
        w->send[i] = bench_driver_create(w->worlds[i], N_L2, false);
        w->receive[i] = bench_driver_create(w->worlds[i], N_L2, true);
        w->cmaps[i] = bench_cmap_create(w->worlds[i]);
        w->floors[i] = bench_floor_tx_create(N_L2, n);
    }
}

static void
worlds_destroy(struct worlds *w)
{
    for (size_t i = 0; i < N_COUNTS; i++) {
        bench_floor_tx_destroy(w->floors[i]);
        bench_cmap_destroy(w->cmaps[i]);
        bench_driver_destroy(w->send[i]);
        bench_driver_destroy(w->receive[i]);
        bench_rx_destroy(w->rx[i]);
        bench_tx_destroy(w->tx[i]);
    }
}

static void
destroy_all(struct bench_workload w[], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bench_workload_destroy(&w[i]);
    }
}

/* Windows after which nearly all of what a workload with 'n' neighbours needs
 * of the tables is where it will be next time. */
static size_t
n_warm(size_t n)
{
    return 2 + 2 * n / BENCH_WINDOW;
}

/* The figures of one direction: the floor, with a thousand neighbours, with a
 * million, and the floor and a thousand once more as controls.  Nothing else
 * is in a round, so that the caches are as if one of them ran alone. */
static void
figures(const char *floor_1k, const char *floor_1m, const char *by_n,
        struct bench_workload floor, struct bench_workload ours_1k,
        struct bench_workload ours_1m, size_t n_rounds)
{
    struct bench_workload w[] = { floor, ours_1k, ours_1m, floor, ours_1k };
    const struct bench_figure f[] = {
        { floor_1k, &w[1], &w[0], false },
        { floor_1m, &w[2], &w[0], false },
        { by_n, &w[2], &w[1], false },
        { floor_1k, &w[3], &w[0], true },
        { floor_1m, &w[3], &w[0], true },
        { by_n, &w[4], &w[1], true },
    };

    bench_steady(&w[2], n_warm(w[2].x), 0);
    bench_rounds(w, ARRAY_SIZE(w), f, ARRAY_SIZE(f), n_rounds);
    destroy_all(w, ARRAY_SIZE(w));
}

/* Each by itself, by number of neighbours. */
static void
translate_series(struct worlds *worlds, struct bench_workload tx_floor,
                 struct bench_workload rx_floor, size_t n_windows)
{
    for (size_t i = 0; i < N_COUNTS; i++) {
        struct bench_workload w[] = {
            bench_tx_workload(worlds->tx[i]),
            bench_rx_workload(worlds->rx[i]),
            bench_driver_workload(worlds->send[i]),
            bench_driver_workload(worlds->receive[i]),
            bench_cmap_workload(worlds->cmaps[i]),
            bench_floor_tx_workload(worlds->floors[i]),
            tx_floor,
            rx_floor,
        };

        for (size_t j = 0; j < ARRAY_SIZE(w); j++) {
            w[j].x = worlds->worlds[i]->n;
            w[j].n_warm = 0;
            bench_steady(&w[j], n_warm(w[j].x), n_windows);
            bench_print_median("cost-by-neighbours", w[j].label, &w[j]);
        }
        destroy_all(w, ARRAY_SIZE(w));
    }
}

static void
translate_l2(struct worlds *worlds, size_t n_rounds, size_t n_windows)
{
    struct bench_floor_tx *floor_tx = bench_floor_tx_create(N_L2, 0);
    struct bench_floor_rx *floor_rx = bench_floor_rx_create(N_L2);
    struct bench_workload tx_floor = bench_floor_tx_workload(floor_tx);
    struct bench_workload rx_floor = bench_floor_rx_workload(floor_rx);

    figures("tx-floor-1k", "tx-floor-1m", "neighbours-1m-tx", tx_floor,
            bench_tx_workload(worlds->tx[COUNT_1K]),
            bench_tx_workload(worlds->tx[COUNT_1M]), n_rounds);
    figures("rx-floor-1k", "rx-floor-1m", "neighbours-1m-rx", rx_floor,
            bench_rx_workload(worlds->rx[COUNT_1K]),
            bench_rx_workload(worlds->rx[COUNT_1M]), n_rounds);
    translate_series(worlds, tx_floor, rx_floor, n_windows);
    bench_floor_tx_destroy(floor_tx);
    bench_floor_rx_destroy(floor_rx);
}

/* The same with headers that are not in the L2 cache, and with packets that
 * have to be released. */
static void
translate_l3(struct worlds *worlds, size_t n_bufs, size_t n_rounds)
{
    struct bench_floor_tx *floor_tx = bench_floor_tx_create(n_bufs, 0);
    struct bench_floor_rx *floor_rx = bench_floor_rx_create(n_bufs);
    static const size_t which[] = { COUNT_1K, COUNT_1M };
    struct bench_tx *tx[ARRAY_SIZE(which)], *released[ARRAY_SIZE(which)];
    struct bench_rx *rx[ARRAY_SIZE(which)];
    struct bench_workload w[2 + 3 * ARRAY_SIZE(which)];
    size_t n = 0;

    w[n++] = bench_floor_tx_workload(floor_tx);
    w[n++] = bench_floor_rx_workload(floor_rx);
    for (size_t i = 0; i < ARRAY_SIZE(which); i++) {
        struct bench_world *world = worlds->worlds[which[i]];

        tx[i] = bench_tx_create(world, n_bufs, BENCH_IP_LEN, true);
        rx[i] = bench_rx_create(world, NULL, n_bufs, BENCH_IP_LEN);
        released[i] = bench_tx_create(world, N_L2, BENCH_IP_LEN, false);
        w[n++] = bench_tx_workload(tx[i]);
        w[n++] = bench_rx_workload(rx[i]);
        w[n++] = bench_tx_workload(released[i]);
    }
    bench_rounds(w, n, NULL, 0, n_rounds);

    for (size_t i = 0; i < ARRAY_SIZE(which); i++) {
        struct bench_workload *ours = &w[2 + 3 * i];

        w[0].x = w[1].x = ours->x;
        bench_print_median("floor-l3", "transmit floor", &w[0]);
        bench_print_median("floor-l3", "receive floor", &w[1]);
        bench_print_median("floor-l3", "transmit", &ours[0]);
        bench_print_median("floor-l3", "receive", &ours[1]);
        bench_print_median("with-release", "transmit", &ours[2]);
        bench_tx_destroy(tx[i]);
        bench_rx_destroy(rx[i]);
        bench_tx_destroy(released[i]);
    }
    destroy_all(w, n);
    bench_floor_tx_destroy(floor_tx);
    bench_floor_rx_destroy(floor_rx);
}

void
bench_translate(enum bench_effort effort)
{
    struct worlds worlds;

    worlds_create(&worlds, effort);
    translate_l2(&worlds, bench_choose(effort, 8, 400, 2000),
                 bench_choose(effort, 4, 150, 1000));
    translate_l3(&worlds, bench_choose(effort, 2 * N_L2, N_L3, N_L3),
                 bench_choose(effort, 2, 60, 400));
    worlds_destroy(&worlds);
}

/* Length of packets: nothing is copied, so that it should not matter.  Packets
 * come from the pool and are released to it; short ones are sent inline. */

void
bench_sizes(enum bench_effort effort)
{
    static const size_t lens[] = { 64, 512, 1500, 2044, 4092 };
    struct bench_world *world = bench_world_get(1000);
    struct bench_workload w[2 * ARRAY_SIZE(lens)];
    struct bench_tx *tx[ARRAY_SIZE(lens)];
    struct bench_rx *rx[ARRAY_SIZE(lens)];

    for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
        tx[i] = bench_tx_create(world, N_L2, lens[i], false);
        rx[i] = bench_rx_create(world, NULL, N_L2, lens[i]);
        w[2 * i] = bench_tx_workload(tx[i]);
        w[2 * i + 1] = bench_rx_workload(rx[i]);
        w[2 * i].x = w[2 * i + 1].x = lens[i];
    }
    bench_rounds(w, ARRAY_SIZE(w), NULL, 0,
                 bench_choose(effort, 2, 100, 800));
    for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
        bench_print_median("size-4092-micro", "transmit", &w[2 * i]);
        bench_print_median("size-4092-micro", "receive", &w[2 * i + 1]);
        bench_tx_destroy(tx[i]);
        bench_rx_destroy(rx[i]);
    }
    destroy_all(w, ARRAY_SIZE(w));
}
