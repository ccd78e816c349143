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
#include "ipoib-stats.h"

#include <stdbool.h>
#include <string.h>

#define COUNTER(MEMBER, NAME, HELP) \
    { NAME, offsetof(struct ipoib_rx_stats, MEMBER) },
const struct ipoib_counter ipoib_rx_counters[IPOIB_N_RX_COUNTERS] = {
    IPOIB_RX_COUNTERS
};
#undef COUNTER

#define COUNTER(MEMBER, NAME, HELP) \
    { NAME, offsetof(struct ipoib_tx_stats, MEMBER) },
const struct ipoib_counter ipoib_tx_counters[IPOIB_N_TX_COUNTERS] = {
    IPOIB_TX_COUNTERS
};
#undef COUNTER

static void
stats_add(const struct ipoib_counter counters[], size_t n, void *a,
          const void *b)
{
    for (size_t i = 0; i < n; i++) {
        ipoib_count(ipoib_counter_of(&counters[i], a),
                    ipoib_counter_read(ipoib_counter_of(&counters[i], b)));
    }
}

void
ipoib_rx_stats_add(struct ipoib_rx_stats *a, const struct ipoib_rx_stats *b)
{
    stats_add(ipoib_rx_counters, IPOIB_N_RX_COUNTERS, a, b);
}

void
ipoib_tx_stats_add(struct ipoib_tx_stats *a, const struct ipoib_tx_stats *b)
{
    stats_add(ipoib_tx_counters, IPOIB_N_TX_COUNTERS, a, b);
}

/* True for "rx_drop_..." and "tx_drop_...", but for errors. */
static bool
is_drop(const char *name)
{
    return !strncmp(name + 2, "_drop_", 6) && strcmp(name + 2, "_drop_error");
}

static uint64_t
stats_dropped(const struct ipoib_counter counters[], size_t n,
              const void *stats)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        if (is_drop(counters[i].name)) {
            sum += ipoib_counter_read(ipoib_counter_of(&counters[i], stats));
        }
    }
    return sum;
}

uint64_t
ipoib_rx_stats_dropped(const struct ipoib_rx_stats *stats)
{
    return stats_dropped(ipoib_rx_counters, IPOIB_N_RX_COUNTERS, stats);
}

uint64_t
ipoib_tx_stats_dropped(const struct ipoib_tx_stats *stats)
{
    return stats_dropped(ipoib_tx_counters, IPOIB_N_TX_COUNTERS, stats);
}
