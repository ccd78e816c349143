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

#ifndef FABRIC_SA_RECORDS_H
#define FABRIC_SA_RECORDS_H 1

/* The attributes of the subnet administrator: what is asked, and the records
 * that answer. */

#include "fabric.h"
#include "fabric-forward.h"

struct ofpbuf;

/* A request. */
struct fabric_sa_request {
    struct fabric_peer peer;
    const struct ib_sa_mad *mad;
    uint64_t mask;              /* Component mask. */
};

/* Each of these appends records of one size, padded to 8 bytes, to 'records',
 * and returns an SA status. */
typedef uint16_t fabric_sa_handler(struct fabric *,
                                   const struct fabric_sa_request *,
                                   struct ofpbuf *records);
fabric_sa_handler fabric_sa_class_port_info;
fabric_sa_handler fabric_sa_nodes;
fabric_sa_handler fabric_sa_port_infos;
fabric_sa_handler fabric_sa_paths;
fabric_sa_handler fabric_sa_mc_get;
fabric_sa_handler fabric_sa_mc_join;
fabric_sa_handler fabric_sa_mc_leave;

/* Sizes of records on the wire. */
#define FABRIC_NODE_RECORD_LEN 108
#define FABRIC_PORT_INFO_RECORD_LEN 68

void *fabric_sa_add_record(struct ofpbuf *records, size_t size);
unsigned int fabric_sa_rate_value(uint8_t rate);
bool fabric_sa_select(uint8_t wanted, uint8_t have);

#endif /* fabric-sa-records.h */
