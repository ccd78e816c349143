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

#ifndef IPOIB_TX_CONTROL_H
#define IPOIB_TX_CONTROL_H 1

/* What a transmit queue tells the control thread, or leaves to it.  The data
 * path's; 'now' is its second.  The control thread is woken when the batch is
 * done: 'wake' of struct ipoib_txq_slots. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dp_packet;
struct eth_header;
struct ipoib_msg;
struct ipoib_txq;

/* Hands '*packetp' to the control thread ('*packetp' becomes NULL).  It may
 * hold the packet and make it longer, so that what is not from malloc() is
 * copied. */
void ipoib_tx_to_control(struct ipoib_txq *, struct dp_packet **packetp,
                         struct ipoib_msg *);

/* The first of the four places of 'src' in the queue's 'sources'. */
static inline size_t
ipoib_tx_first_place(uint64_t src)
{
    return (src * UINT64_C(0x9e3779b97f4a7c15)) >> 58 << 2;
}

/* Unicasts of 'src' are sent: the control thread is told once a second.  A
 * source has four places.  Returns true if 'packet' is to be dropped since its
 * source is a neighbour's stand-in MAC, which only a loop brings here. */
bool ipoib_tx_tell_source(struct ipoib_txq *, uint32_t now, uint64_t src,
                          const struct dp_packet *);

/* The packet of Ethernet frame 'eth' goes to nobody.  If its destination can
 * be a stand-in MAC, then of a neighbour that was forgotten and that a host
 * still has in its cache: the control thread can ask who has the IP address.
 * It is told once a second of each: much traffic to somebody who is gone must
 * neither become as many broadcasts, nor take from what the host may send to
 * the control thread, ARP that is. */
void ipoib_tx_hint(struct ipoib_txq *, uint32_t now, const uint8_t *eth,
                   uint64_t mac);

/* Tells the sender of the IP packet in Ethernet frame 'eth' that it can send
 * 'mtu' bytes to that destination.  The control thread delivers the answer. */
void ipoib_tx_error(struct ipoib_txq *, const struct eth_header *eth,
                    uint32_t ip_len, uint32_t mtu);

#endif /* ipoib-tx-control.h */
