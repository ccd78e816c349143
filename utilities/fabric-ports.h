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

#ifndef FABRIC_PORTS_H
#define FABRIC_PORTS_H 1

/* The ports of the fabric: attachment, LIDs, states, P_Keys. */

#include "fabric.h"

struct ds;

void fabric_ports_init(struct fabric *);
void fabric_ports_destroy(struct fabric *);
void fabric_ports_run(struct fabric *);
void fabric_ports_wait(struct fabric *);

void fabric_attach(struct fabric *, struct fabric_endpoint *,
                   const struct ib_soft_attach *);
void fabric_detach(struct fabric *, struct fabric_port *);
char *fabric_ports_make_up(struct fabric *, unsigned int n);

struct fabric_port *fabric_port_by_guid(const struct fabric *, uint64_t guid);
struct fabric_port *fabric_port_by_gid(const struct fabric *,
                                       const struct ib_gid *);
struct fabric_port *fabric_port_by_lid(const struct fabric *, uint16_t lid);
struct fabric_port **fabric_ports_sorted(const struct fabric *, size_t *n);
struct fabric_port *fabric_port_parse(const struct fabric *, const char *,
                                      char **errorp);

struct ib_gid fabric_port_gid(const struct fabric *,
                              const struct fabric_port *);
bool fabric_port_has_lid(const struct fabric_port *, uint16_t lid);
uint16_t fabric_port_pkey(const struct fabric_port *, uint16_t pkey);
bool fabric_port_is_present(const struct fabric_port *);
const char *fabric_port_state_to_string(uint8_t state);
void fabric_port_format_description(const struct fabric_port *, struct ds *);

void fabric_port_tell(struct fabric *, struct fabric_port *);
void fabric_port_reregister(struct fabric *, struct fabric_port *);
void fabric_reregister_all(struct fabric *);
void fabric_port_sync(struct fabric *, struct fabric_port *, bool reregister);

char *fabric_port_set_lid(struct fabric *, struct fabric_port *,
                          uint16_t lid, uint8_t lmc);
void fabric_port_set_state(struct fabric *, struct fabric_port *, uint8_t);
void fabric_port_set_mtu(struct fabric *, struct fabric_port *, uint8_t);
void fabric_port_set_pkeys(struct fabric *, struct fabric_port *,
                           const uint16_t *, size_t);

#endif /* fabric-ports.h */
