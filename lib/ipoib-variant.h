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

#ifndef IPOIB_VARIANT_H
#define IPOIB_VARIANT_H 1

/* Variants of the data path.
 *
 * ipoib-rx.c, ipoib-rx-refill.c and ipoib-tx.c are compiled twice for x86-64:
 * for any CPU, and with IPOIB_FAST_CPU for those of the last decade, which
 * have AVX2, BMI2 and MOVBE.  What they export has a name of its own in each
 * variant; ipoib-variant.c has the functions that the others call, which
 * choose.
 *
 * For tests, the environment variable OVS_IPOIB_CPU=any takes the variant that
 * any CPU can run. */

#include "openvswitch/vlog.h"

struct dp_packet_batch;
struct ipoib_rxq;
struct ipoib_txq;

/* The name of function NAME in this variant, and its module for vlog, of which
 * there is one. */
#ifdef IPOIB_FAST_CPU
#define IPOIB_VARIANT(NAME) NAME##_fast
#define IPOIB_VARIANT_VLOG(MODULE) extern struct vlog_module *VLM_##MODULE
#define this_module (*IPOIB_VLOG_MODULE)
#else
#define IPOIB_VARIANT(NAME) NAME##_any
#define IPOIB_VARIANT_VLOG(MODULE) VLOG_DEFINE_THIS_MODULE(MODULE)
#endif

#define IPOIB_DECLARE_VARIANT(SUFFIX)                                   \
    int ipoib_rxq_refill_##SUFFIX(struct ipoib_rxq *);                  \
    int ipoib_rx_batch_##SUFFIX(struct ipoib_rxq *,                     \
                                struct dp_packet_batch *);              \
    void ipoib_tx_batch_##SUFFIX(struct ipoib_txq *,                    \
                                 struct dp_packet_batch *,              \
                                 unsigned int class)
IPOIB_DECLARE_VARIANT(any);
IPOIB_DECLARE_VARIANT(fast);

#endif /* ipoib-variant.h */
