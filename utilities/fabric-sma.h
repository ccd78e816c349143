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

#ifndef FABRIC_SMA_H
#define FABRIC_SMA_H 1

/* The subnet management agents (SMA, 14.2) of the nodes that an external
 * subnet manager sees. */

#include "fabric-switch.h"

#define FABRIC_CLASS_SUBN       0x01    /* LID routed. */
#define FABRIC_CLASS_SUBN_DR    0x81    /* Directed route. */
#define FABRIC_SMP_DIRECTION    0x8000  /* Of the status: an answer. */

#define FABRIC_METHOD_TRAP      0x05
#define FABRIC_METHOD_TRAP_REPRESS 0x07

#define FABRIC_ATTR_SM_INFO     0x0020

/* A subnet management packet (14.2.1). */
struct fabric_smp {
    uint8_t base_version;
    uint8_t mgmt_class;
    uint8_t class_version;
    uint8_t method;
    ovs_be16 status;            /* With the direction, if of a directed
                                 * route. */
    uint8_t hop_pointer;
    uint8_t hop_count;
    ovs_32aligned_be64 tid;
    ovs_be16 attr_id;
    ovs_be16 reserved;
    ovs_be32 attr_mod;
    ovs_be32 mkey[2];
    ovs_be16 dr_slid, dr_dlid;
    uint8_t reserved2[28];
    uint8_t data[FABRIC_SMP_DATA_LEN];
    uint8_t initial_path[64];   /* From index 1 on. */
    uint8_t return_path[64];
};
BUILD_ASSERT_DECL(sizeof(struct fabric_smp) == IB_MAD_LEN);

/* What a manager set concerns the port. */
typedef void fabric_sma_changed_cb(struct fabric_lport *, bool reregister,
                                   void *aux);

struct fabric_lport *fabric_sma_walk(struct fabric_lport *from,
                                     struct fabric_smp *);
void fabric_sma_handle(struct fabric_lport *, struct fabric_smp *,
                       fabric_sma_changed_cb *, void *aux);
void fabric_sma_refuse(struct fabric_smp *);
void fabric_sma_compose_trap(const struct fabric_node *, uint64_t tid,
                             struct fabric_smp *);

void fabric_sma_node_info(const struct fabric_lport *, uint8_t data[64]);
void fabric_sma_port_info(const struct fabric_lport *, uint8_t data[64]);

#endif /* fabric-sma.h */
