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

#ifndef FABRIC_RMPP_H
#define FABRIC_RMPP_H 1

/* The sending side of the reliable multi-packet transaction protocol (RMPP,
 * 13.6): how the subnet administrator answers GetTable. */

#include "fabric.h"

struct fabric_peer;

void fabric_rmpp_init(struct fabric *);
void fabric_rmpp_destroy(struct fabric *);
void fabric_rmpp_run(struct fabric *);
void fabric_rmpp_wait(struct fabric *);

bool fabric_rmpp_start(struct fabric *, const struct fabric_peer *,
                       const struct ib_sa_mad *header, void *data, size_t n);
bool fabric_rmpp_input(struct fabric *, const struct fabric_peer *,
                       const struct ib_sa_mad *);
void fabric_rmpp_forget_port(struct fabric *, struct fabric_port *);
void fabric_rmpp_forget_all(struct fabric *);

#endif /* fabric-rmpp.h */
