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

#ifndef HOST_REMAC_H
#define HOST_REMAC_H 1

/* How network boot code (iPXE, FlexBoot) knows other stations: not by the 20
 * bytes that ARP has, but by where the ARP came from, the QPN and LID of the
 * completion.  A table leads from those to the 20 bytes that came from there
 * last, and that is where packets go.  So a station is mistaken for another if
 * their ARP comes from the same queue pair.
 *
 * Here, what stands for a station is an address with that QPN and a GID of
 * zeros with that LID at its end. */

#include <stdint.h>
#include "ipoib-packet.h"
#include "openvswitch/hmap.h"

/* Entries; when there are as many, all are forgotten. */
#define HOST_REMAC_MAX 4096

struct host_remacs {
    struct hmap map;
};

void host_remacs_init(struct host_remacs *);
void host_remacs_destroy(struct host_remacs *);

/* ARP with 'addr' came from 'qpn' at 'lid': returns what stands for that. */
struct ipoib_addr host_remacs_learn(struct host_remacs *, uint32_t qpn,
                                    uint16_t lid, const struct ipoib_addr *);
/* The address for which 'addr' stands, or NULL if it is not known. */
const struct ipoib_addr *host_remacs_find(const struct host_remacs *,
                                          const struct ipoib_addr *addr);

#endif /* host-remac.h */
