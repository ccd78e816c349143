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

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hash.h"
#include "ipoib-index.h"
#include "ipoib-neigh.h"
#include "ipoib-pages.h"
#include "ovs-rcu.h"
#include "util.h"

/* The tables of the data path against what OVS would use, its cmap.  Entries
 * of a cmap are a cache line each, as neighbours are, in one array, in large
 * pages where there are such: as good as it gets for a cmap. */

static struct bench_node *
nodes_create(size_t n)
{
    return ipoib_pages_alloc(n * sizeof(struct bench_node));
}

static void
nodes_destroy(struct bench_node *nodes, size_t n)
{
    ipoib_pages_free(nodes, n * sizeof *nodes);
}

size_t
bench_memory(void)
{
    unsigned long int resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    malloc_trim(0);
    ovs_assert(f && fscanf(f, "%*u %lu", &resident) == 1);
    fclose(f);
    return resident * (size_t) get_page_size();
}

/* Look-ups. */

struct bench_cmap {
    const struct bench_world *world;
    struct cmap cmap;
    struct bench_node *nodes;
    uint64_t keys[BENCH_WINDOW];
    struct bench_random random;
    uint64_t sum, expected;
};

static uint32_t
hash_key(uint64_t key)
{
    return hash_uint64(key);
}

static uint64_t
key_of(struct eth_addr mac)
{
    return eth_addr_to_uint64(mac);
}

struct bench_cmap *
bench_cmap_create(const struct bench_world *world)
{
    struct bench_cmap *c = xzalloc(sizeof *c);

    c->world = world;
    c->random = (struct bench_random) BENCH_RANDOM_INITIALIZER;
    cmap_init(&c->cmap);
    c->nodes = nodes_create(world->n);
    for (size_t i = 0; i < world->n; i++) {
        c->nodes[i].key = key_of(world->macs[i]);
        c->nodes[i].used = i;
        cmap_insert(&c->cmap, &c->nodes[i].node, hash_key(c->nodes[i].key));
        if (i % 1024 == 0) {
            ovsrcu_quiesce();
        }
    }
    return c;
}

void
bench_cmap_destroy(struct bench_cmap *c)
{
    cmap_destroy(&c->cmap);
    ovsrcu_quiesce();
    nodes_destroy(c->nodes, c->world->n);
    free(c);
}

static void
cmap_prepare(void *c_)
{
    struct bench_cmap *c = c_;

    for (size_t i = 0; i < BENCH_WINDOW; i++) {
        uint32_t neigh = bench_random_below(&c->random, c->world->n);

        c->keys[i] = key_of(c->world->macs[neigh]);
        c->expected += neigh;
    }
}

/* Finds the node of each key, and reads what is in it. */
static void
cmap_run(void *c_)
{
    struct bench_cmap *c = c_;

    BUILD_ASSERT(BENCH_BURST <= sizeof(unsigned long int) * 8);
    for (size_t i = 0; i < BENCH_WINDOW; i += BENCH_BURST) {
        const struct cmap_node *found[BENCH_BURST];
        uint32_t hashes[BENCH_BURST];

        for (size_t j = 0; j < BENCH_BURST; j++) {
            hashes[j] = hash_key(c->keys[i + j]);
        }
        cmap_find_batch(&c->cmap, (UINT64_C(1) << BENCH_BURST) - 1, hashes,
                        found);
        for (size_t j = 0; j < BENCH_BURST; j++) {
            const struct bench_node *node;

            CMAP_NODE_FOR_EACH (node, node, found[j]) {
                if (node->key == c->keys[i + j]) {
                    c->sum += node->used;
                    break;
                }
            }
        }
    }
}

static void
cmap_finish(void *c_)
{
    struct bench_cmap *c = c_;

    ovs_assert(c->sum == c->expected);
}

struct bench_workload
bench_cmap_workload(struct bench_cmap *c)
{
    return (struct bench_workload) {
        .label = "cmap",
        .x = c->world->n,
        .n_warm = 1,
        .prepare = cmap_prepare,
        .run = cmap_run,
        .finish = cmap_finish,
        .aux = c,
    };
}

/* Insertions: of the same keys, from an empty map on, so that growing is in
 * it; a thousand at a time into each map in turn.  Each stores the key in an
 * entry of a cache line, which lies ready in an array, and puts the entry into
 * the map: ours by ipoib_index_insert(), which finds neighbours by stand-in
 * MAC and by (LID, QPN), with the entry's number; the cmap's by the hash and
 * cmap_insert().  Neither looks whether the key is there.  To grow takes
 * longer than a window may, and is to be counted: so this is the thread's time
 * on the processor, and the sum of all. */

#define INSERT_CHUNK 1000

static double
thread_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return ts.tv_sec * 1e9 + ts.tv_nsec;
}

/* The maps of a run: ours, and two cmaps, the second one as control. */
struct insert {
    struct ipoib_index *index;
    struct cmap cmaps[2];
    struct bench_node *nodes[3]; /* Entries, of each. */
    uint64_t *keys;
    double ns[3];               /* So far: of 'index', 'cmaps'. */
};

static void
insert_chunk(struct insert *insert, size_t map, size_t first)
{
    struct bench_node *nodes = insert->nodes[map];
    double start = thread_ns();

    if (!map) {
        for (size_t i = first; i < first + INSERT_CHUNK; i++) {
            nodes[i].key = insert->keys[i];
            ipoib_index_insert(insert->index, insert->keys[i], i);
        }
    } else {
        for (size_t i = first; i < first + INSERT_CHUNK; i++) {
            nodes[i].key = insert->keys[i];
            cmap_insert(&insert->cmaps[map - 1], &nodes[i].node,
                        hash_key(insert->keys[i]));
        }
    }
    insert->ns[map] += thread_ns() - start;
}

static void
insert_print(const struct insert *insert, size_t n)
{
    bench_print_point("insert", "ipoib", n, n / insert->ns[0] * 1e3, "M/s");
    bench_print_point("insert", "cmap", n, n / insert->ns[1] * 1e3, "M/s");
}

static void
insert_check(const struct insert *insert, size_t n)
{
    ovs_assert(ipoib_index_count(insert->index) == n);
    ovs_assert(cmap_count(&insert->cmaps[0]) == n);
    for (size_t i = 0; i < n; i++) {
        uint64_t key = insert->keys[i];
        struct ipoib_index_cursor cursor = ipoib_index_find(insert->index,
                                                            key);
        bool found = false;

        while (!found && ipoib_index_next(&cursor)) {
            found = insert->nodes[0][cursor.slot].key == key;
        }
        ovs_assert(found && cursor.slot == i);
    }
}

static void
insert_run(struct insert *insert, size_t n, bool reverse)
{
    memset(insert->ns, 0, sizeof insert->ns);
    insert->index = ipoib_index_create(0);
    cmap_init(&insert->cmaps[0]);
    cmap_init(&insert->cmaps[1]);
    for (size_t i = 0; i < n; i += INSERT_CHUNK) {
        for (size_t map = 0; map < 3; map++) {
            insert_chunk(insert, reverse ? 2 - map : map, i);
        }
        /* Frees what the maps have outgrown. */
        ovsrcu_quiesce();
        if (i + INSERT_CHUNK == 1000 || i + INSERT_CHUNK == 100000
            || i + INSERT_CHUNK == 1000000) {
            insert_print(insert, i + INSERT_CHUNK);
        }
    }
    insert_check(insert, n);
    cmap_destroy(&insert->cmaps[0]);
    cmap_destroy(&insert->cmaps[1]);
    ipoib_index_destroy(insert->index);
    ovsrcu_quiesce();
}

void
bench_insert(enum bench_effort effort)
{
    size_t n_runs = bench_choose(effort, 1, 4, 20);
    size_t n = bench_choose(effort, 10000, 1000000, 1000000);
    struct insert insert;

    insert.keys = xcalloc(n, sizeof *insert.keys);
    for (size_t i = 0; i < ARRAY_SIZE(insert.nodes); i++) {
        insert.nodes[i] = nodes_create(n);
    }
    for (size_t i = 0; i < n; i++) {
        struct ipoib_addr addr = gw_neigh_addr(i);

        insert.keys[i] = ipoib_frame_mac(
            eth_addr_to_uint64(ipoib_standin_mac(GW_PKEY, &addr, 0)));
    }
    for (size_t i = 0; i < n_runs; i++) {
        insert_run(&insert, n, i % 2);
        bench_print_ratio("insert", false, insert.ns[1] / n,
                          insert.ns[0] / n, "ns");
        bench_print_ratio("insert", true, insert.ns[2] / n,
                          insert.ns[1] / n, "ns");
    }
    for (size_t i = 0; i < ARRAY_SIZE(insert.nodes); i++) {
        nodes_destroy(insert.nodes[i], n);
    }
    free(insert.keys);
}

/* Aging: a pass of ipoib_neigh_age() over the table, in which nobody is idle,
 * against one of CMAP_FOR_EACH that reads when each was used.  A window has a
 * part of the pass, the next one goes on from there.
 *
 * ipoib_neigh_age() does not look at neighbours that cannot be idle, since a
 * while ago they were not.  That is in the series (with label "ipoib, nothing
 * due"), but the figure is that of a pass that looks at all. */

#define AGE_UNITS 16384

struct aging {
    struct bench_world *world;
    struct cmap_cursor cursor;
    struct bench_cmap *cmap;
    uint64_t sum;
};

/* A clock that is far behind, so that all neighbours seem to have been used
 * just now, and that goes on by the time after which they would be idle with
 * each call, so that all have to be looked at. */
void
bench_age(struct bench_world *world, size_t budget)
{
    static long long int now;

    now += 1000;
    ovs_assert(!ipoib_neigh_age(world->gw->shared.neighs, now, 1000, budget));
}

static void
age_run(void *aging_)
{
    struct aging *aging = aging_;

    bench_age(aging->world, AGE_UNITS);
}

static void
age_nothing_run(void *aging_)
{
    struct aging *aging = aging_;

    ovs_assert(!ipoib_neigh_age(aging->world->gw->shared.neighs, 1000,
                                3600 * 1000, AGE_UNITS));
}

static void
age_cmap_run(void *aging_)
{
    struct aging *aging = aging_;
    size_t n = BENCH_WINDOW;
    struct bench_node *node;

    while (n) {
        CMAP_CURSOR_FOR_EACH_CONTINUE (node, node, &aging->cursor) {
            aging->sum += node->used;
            if (!--n) {
                break;
            }
        }
        if (n) {
            aging->cursor = cmap_cursor_start(&aging->cmap->cmap);
        }
    }
    bench_use(aging->sum);
}

void
bench_aging(enum bench_effort effort)
{
    struct aging aging = {
        .world = bench_world_get(bench_choose(effort, 1000, 1000000,
                                                 1000000)),
    };
    struct bench_workload w[] = {
        { .run = age_run, .n_warm = 1,
          .units = MIN(AGE_UNITS, aging.world->n) },
        { .run = age_cmap_run, .n_warm = 1 },
        { .run = age_cmap_run, .n_warm = 1 },
        { .run = age_nothing_run, .n_warm = 1,
          .units = MIN(AGE_UNITS, aging.world->n) },
    };
    const struct bench_figure figures[] = {
        { "aging", &w[0], &w[1], false },
        { "aging", &w[2], &w[1], true },
    };

    aging.cmap = bench_cmap_create(aging.world);
    aging.cursor = cmap_cursor_start(&aging.cmap->cmap);
    for (size_t i = 0; i < ARRAY_SIZE(w); i++) {
        w[i].aux = &aging;
        w[i].x = aging.world->n;
    }
    bench_rounds(w, ARRAY_SIZE(w), figures, ARRAY_SIZE(figures),
                 bench_choose(effort, 4, 300, 2000));
    bench_print_median("aging", "ipoib", &w[0]);
    bench_print_median("aging", "ipoib, nothing due", &w[3]);
    bench_print_median("aging", "cmap", &w[1]);
    for (size_t i = 0; i < ARRAY_SIZE(w); i++) {
        bench_workload_destroy(&w[i]);
    }
    bench_cmap_destroy(aging.cmap);
}

/* Memory of a neighbour with an IPv4 address, by the table's own account.
 * What the system has given must be the same, nearly. */

#define MAX_DEVIATION 0.05

void
bench_bytes(enum bench_effort effort)
{
    size_t n = bench_choose(effort, 1000, 1000000, 1000000);
    struct bench_world *world = bench_world_get(n);
    size_t fast, all;

    ipoib_neigh_table_memory(world->gw->shared.neighs, &fast, &all);
    bench_print_value("bytes-fast", (double) fast / n, "bytes");
    bench_print_value("bytes-all", (double) all / n, "bytes");
    bench_print_point("bytes", "in the data path", n, (double) fast / n,
                      "bytes");
    bench_print_point("bytes", "all", n, (double) all / n, "bytes");
    bench_print_point("bytes", "of the system", n,
                      (double) world->memory / n, "bytes");
    if (effort != BENCH_SMOKE
        && (world->memory > all * (1 + MAX_DEVIATION)
            || world->memory < all * (1 - MAX_DEVIATION))) {
        ovs_fatal(0, "%"PRIuSIZE" neighbours take %"PRIuSIZE" bytes by the "
                  "table's account, %"PRIuSIZE" of the system", n, all,
                  world->memory);
    }
}
