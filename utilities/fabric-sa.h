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

#ifndef FABRIC_SA_H
#define FABRIC_SA_H 1

/* The subnet administrator. */

#include "fabric.h"

void fabric_sa_init(struct fabric *);
void fabric_sa_destroy(struct fabric *);
void fabric_sa_run(struct fabric *);
void fabric_sa_wait(struct fabric *);
void fabric_sa_input(struct fabric *, struct fabric_port *,
                     const struct fabric_packet *);
void fabric_sa_restart(struct fabric *, long long int down_ms);

#endif /* fabric-sa.h */
