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
#include "ipoib-variant.h"

#include <stdlib.h>
#include <string.h>

#include "ipoib-compat.h"
#include "ipoib-rx.h"
#include "ipoib-tx.h"
#include "ipoib-tx-offload.h"

#ifdef HAVE_FAST_CPU_VARIANT
#include <cpuid.h>

static bool fast;

static bool
cpu_is_fast(void)
{
    const char *s = getenv("OVS_IPOIB_CPU");
    unsigned int eax, ebx, ecx, edx;

    if (s && !strcmp(s, "any")) {
        return false;
    }
    __builtin_cpu_init();
    return (__builtin_cpu_supports("avx2")
            && __builtin_cpu_supports("bmi")
            && __builtin_cpu_supports("bmi2")
            && __get_cpuid(1, &eax, &ebx, &ecx, &edx)
            && ecx & bit_MOVBE);
}

OVS_CONSTRUCTOR(init_ipoib_variant) {
    fast = cpu_is_fast();
}

#define CHOOSE(NAME, ...) \
    (OVS_LIKELY(fast) ? NAME##_fast(__VA_ARGS__) : NAME##_any(__VA_ARGS__))
#else
#define CHOOSE(NAME, ...) NAME##_any(__VA_ARGS__)
#endif

int
ipoib_rxq_refill(struct ipoib_rxq *rxq)
{
    return CHOOSE(ipoib_rxq_refill, rxq);
}

int
ipoib_rx_batch(struct ipoib_rxq *rxq, struct dp_packet_batch *batch)
{
    return CHOOSE(ipoib_rx_batch, rxq, batch);
}

static void
tx_complete_batch(struct ipoib_txq *txq, struct dp_packet_batch *batch,
                  unsigned int class)
{
    CHOOSE(ipoib_tx_batch, txq, batch, class);
}

void
ipoib_tx_batch(struct ipoib_txq *txq, struct dp_packet_batch *batch)
{
    ipoib_tx_batch_class(txq, batch, 0);
}

void
ipoib_tx_batch_class(struct ipoib_txq *txq, struct dp_packet_batch *batch,
                     unsigned int class)
{
    if (OVS_UNLIKELY(ipoib_may_need_offload())) {
        ipoib_tx_offload_batch(txq, batch, class, tx_complete_batch);
    } else {
        tx_complete_batch(txq, batch, class);
    }
}
