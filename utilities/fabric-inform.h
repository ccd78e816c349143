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

#ifndef FABRIC_INFORM_H
#define FABRIC_INFORM_H 1

/* Subscriptions (InformInfo) and what is sent to subscribers (Reports). */

#include "fabric.h"

struct fabric_peer;

void fabric_inform_init(struct fabric *);
void fabric_inform_destroy(struct fabric *);
void fabric_inform_run(struct fabric *);
void fabric_inform_wait(struct fabric *);

uint16_t fabric_inform_set(struct fabric *, const struct fabric_peer *,
                           const struct ib_inform_info *);
void fabric_inform_notify(struct fabric *, uint16_t trap,
                          const struct ib_gid *);
bool fabric_inform_input(struct fabric *, const struct fabric_peer *,
                         const struct ib_sa_mad *);
void fabric_inform_forget_port(struct fabric *, struct fabric_port *);
void fabric_inform_forget_all(struct fabric *);

#endif /* fabric-inform.h */
