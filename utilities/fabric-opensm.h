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

#ifndef FABRIC_OPENSM_H
#define FABRIC_OPENSM_H 1

/* OpenSM as the manager of the fabric: what joins fabric-ibsim, over which it
 * talks, fabric-sma, which it configures, and the fabric. */

#include "fabric.h"

struct ds;
struct json;

char *fabric_opensm_create(struct fabric *, const char *name,
                           int n_switches);
void fabric_opensm_destroy(struct fabric *);
void fabric_opensm_run(struct fabric *);
void fabric_opensm_wait(struct fabric *);
void fabric_opensm_forget_port(struct fabric *, struct fabric_port *);

bool fabric_opensm_is_up(const struct fabric *);
const char *fabric_opensm_name(const struct fabric *);
void fabric_opensm_format(const struct fabric *, struct ds *);
struct json *fabric_opensm_to_json(const struct fabric *);
size_t fabric_opensm_count_groups(const struct fabric *);
void fabric_opensm_format_groups(const struct fabric *, struct ds *);
struct json *fabric_opensm_groups_to_json(const struct fabric *);

#endif /* fabric-opensm.h */
