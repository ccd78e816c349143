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

/* A test of ipoib-table: the entry that a reader is looking at is given to
 * another key meanwhile.  That is seldom by itself, and often in a table of
 * our own, in which the reader gives way at that point. */

#include <config.h>
#undef NDEBUG

#include <sched.h>

#define IPOIB_TABLE_PAUSE() sched_yield()
#define ipoib_table_count race_table_count
#define ipoib_table_create race_table_create
#define ipoib_table_destroy race_table_destroy
#define ipoib_table_insert race_table_insert
#define ipoib_table_insert_new race_table_insert_new
#define ipoib_table_key_128 race_table_key_128
#define ipoib_table_key_ip race_table_key_ip
#define ipoib_table_lookup race_table_lookup
#define ipoib_table_lookup_batch race_table_lookup_batch
#define ipoib_table_memory race_table_memory
#define ipoib_table_prefetch race_table_prefetch
#define ipoib_table_remove race_table_remove
#define ipoib_table_search_all race_table_search_all
#define ipoib_table_search_next race_table_search_next
#include "ipoib-table.c"

#include "ovs-thread.h"
#include "ovstest.h"
#include "timeval.h"

/* A reader has done enough after so many look-ups, or so many ms: giving way
 * is slow on a busy machine. */
enum { N_READERS = 2, N_KEYS = 40, N_LOOKUPS = 20000, MAX_MS = 2000 };

static struct ipoib_table *table;
static atomic_count n_running;

/* The upper half of a slot says which key it belongs to; a key that is a
 * multiple of 4 is always there. */
static void *
reader_thread(void *aux OVS_UNUSED)
{
    long long int deadline = time_msec() + MAX_MS;

    for (int i = 0; i < N_LOOKUPS && time_msec() < deadline; i++) {
        uint64_t keys[4];
        uint32_t slots[4];

        for (size_t j = 0; j < ARRAY_SIZE(keys); j++) {
            keys[j] = 1 + random_range(N_KEYS);
        }
        if (i % 2) {
            ipoib_table_lookup_batch(table, keys, ARRAY_SIZE(keys), slots);
        } else {
            for (size_t j = 0; j < ARRAY_SIZE(keys); j++) {
                slots[j] = ipoib_table_lookup(table, keys[j]);
            }
        }
        for (size_t j = 0; j < ARRAY_SIZE(keys); j++) {
            ovs_assert(slots[j] == IPOIB_SLOT_NONE
                       ? keys[j] % 4 : slots[j] >> 16 == keys[j]);
        }
        if (i % 64 == 0) {
            ovsrcu_quiesce();
        }
    }
    atomic_count_dec(&n_running);
    return NULL;
}

static void
test_ipoib_tables_race_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    pthread_t threads[N_READERS];

    table = ipoib_table_create(N_KEYS);
    for (uint64_t key = 1; key <= N_KEYS; key++) {
        ipoib_table_insert(table, key, key << 16);
    }
    atomic_count_init(&n_running, N_READERS);
    for (int i = 0; i < N_READERS; i++) {
        threads[i] = ovs_thread_create("reader", reader_thread, NULL);
    }

    for (uint32_t i = 0; atomic_count_get(&n_running); i++) {
        uint64_t key = 1 + random_range(N_KEYS);

        if (key % 4 == 0 || random_range(2)) {
            ipoib_table_insert(table, key, key << 16 | (i & UINT16_MAX));
        } else {
            ipoib_table_remove(table, key);
        }
        if (i % 64 == 0) {
            ovsrcu_quiesce();
        }
    }
    for (int i = 0; i < N_READERS; i++) {
        xpthread_join(threads[i], NULL);
    }
    ovs_assert(ipoib_table_count(table) <= N_KEYS);
    ovs_assert(ipoib_table_memory(table) > 0);
    ipoib_table_destroy(table);
    ovsrcu_barrier();
}

OVSTEST_REGISTER("test-ipoib-tables-race", test_ipoib_tables_race_main);
