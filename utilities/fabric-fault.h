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

#ifndef FABRIC_FAULT_H
#define FABRIC_FAULT_H 1

/* Faults on request: packets lost, duplicated, delayed or reordered, and
 * requests to the subnet administrator refused or ignored. */

#include "fabric.h"

struct ds;
struct json;

/* What becomes of a packet that was held back. */
typedef void fabric_fault_resume(struct fabric *, struct fabric_port *,
                                 enum fabric_dir,
                                 const struct fabric_packet *);

void fabric_fault_init(struct fabric *);
void fabric_fault_destroy(struct fabric *);
void fabric_fault_run(struct fabric *, fabric_fault_resume *);
void fabric_fault_wait(struct fabric *);

bool fabric_fault_apply(struct fabric *, struct fabric_port *,
                        enum fabric_dir, const struct fabric_packet *,
                        fabric_fault_resume *);

char *fabric_fault_add(struct fabric *, uint64_t guid, const char *type,
                       const char *value, const char *const *words, size_t n,
                       unsigned int *idp);
bool fabric_fault_remove(struct fabric *, unsigned int id);
void fabric_fault_clear(struct fabric *);
void fabric_fault_format(const struct fabric *, struct ds *);
struct json *fabric_fault_to_json(const struct fabric *);

/* What a fault has the subnet administrator do with a request. */
struct fabric_sa_verdict {
    bool ignore;
    uint16_t status;            /* 0: as without a fault. */
};
struct fabric_sa_verdict fabric_sa_fault_check(struct fabric *,
                                               const struct fabric_port *,
                                               uint8_t method, uint16_t attr);
char *fabric_sa_fault_add(struct fabric *, uint64_t guid, const char *type,
                          const char *const *words, size_t n,
                          unsigned int *idp);

#endif /* fabric-fault.h */
