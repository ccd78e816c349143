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

#ifndef FABRIC_FORWARD_H
#define FABRIC_FORWARD_H 1

/* Packets from port to port, and from the subnet manager to ports. */

#include "fabric.h"

void fabric_forward_input(struct fabric *, struct fabric_port *,
                          const void *msg, size_t len);
void fabric_forward_resume(struct fabric *, struct fabric_port *,
                           enum fabric_dir, const struct fabric_packet *);

/* Where a management datagram came from, and so where an answer goes. */
struct fabric_peer {
    struct fabric_port *port;
    uint16_t lid;               /* With path bits. */
    uint16_t sm_lid;            /* Where it went. */
    uint32_t qpn;
    uint16_t pkey;              /* As the request had it. */
    uint8_t sl;
    bool has_grh;
    struct ib_gid gid;          /* If 'has_grh'. */
};

struct ib_sa_mad;
void fabric_forward_from_sm(struct fabric *, const struct fabric_peer *,
                            const struct ib_sa_mad *);

#endif /* fabric-forward.h */
