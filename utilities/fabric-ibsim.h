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

#ifndef FABRIC_IBSIM_H
#define FABRIC_IBSIM_H 1

/* The server's side of the socket protocol of ibsim, the simulator that comes
 * with OpenSM: a program preloaded with libumad2sim.so that believes to use
 * /dev/infiniband/umad0 talks it.
 *
 * There are abstract AF_UNIX datagram sockets: NAME:ctl for control messages,
 * which come from NAME:ctl<pid> and are answered one by one, and for each
 * client NAME:out<n>, which exchanges management datagrams with the client's
 * NAME:in<pid>. */

#include <stdbool.h>
#include <stdint.h>
#include "ipoib-wire.h"

struct fabric_ibsim;

#define FABRIC_IBSIM_CLIENTS 32
#define FABRIC_IBSIM_NODE_LEN 32
#define FABRIC_IBSIM_UNDELIVERABLE 110 /* Status: ETIMEDOUT of Linux. */

struct fabric_ibsim_client {
    int id;
    int fd;                     /* NAME:out<id>, or -1: nobody. */
    uint32_t pid;
    bool is_sm;                 /* Holds the issm device open. */
    void *node;                 /* The user's. */
};

/* A management datagram, with a header of the simulator's.  Fields are in
 * network byte order. */
struct fabric_ibsim_packet {
    union {
        ovs_be16 lid;
        uint32_t pad;
    } dlid, slid;               /* Source 0: the client's own. */
    ovs_be32 dqpn, sqpn;
    ovs_be32 status;            /* FABRIC_IBSIM_UNDELIVERABLE, or 0. */
    ovs_be32 pad;
    ovs_be64 length;            /* Of the MAD. */
    uint8_t mad[IB_MAD_LEN];
};
BUILD_ASSERT_DECL(sizeof(struct fabric_ibsim_packet) == 288);

struct fabric_ibsim_ops {
    /* Returns the node of the name 'name' ("" is the default), and stores its
     * name there; or returns NULL if there is none. */
    void *(*find_node)(void *aux, char name[FABRIC_IBSIM_NODE_LEN]);
    /* What clients ask for about their node. */
    void (*node_info)(void *aux, void *node, uint8_t data[64]);
    void (*port_info)(void *aux, void *node, uint8_t data[64]);
    void (*pkeys)(void *aux, void *node, ovs_be16 pkeys[32]);
    /* 'is_sm' of the client changed. */
    void (*sm_changed)(void *aux, struct fabric_ibsim_client *);
    /* A datagram came. */
    void (*receive)(void *aux, struct fabric_ibsim_client *,
                    struct fabric_ibsim_packet *);
};

char *fabric_ibsim_open(const char *name, const struct fabric_ibsim_ops *,
                        void *aux, struct fabric_ibsim **);
void fabric_ibsim_close(struct fabric_ibsim *);
void fabric_ibsim_run(struct fabric_ibsim *);
void fabric_ibsim_wait(struct fabric_ibsim *);

const char *fabric_ibsim_name(const struct fabric_ibsim *);
struct fabric_ibsim_client *fabric_ibsim_client(struct fabric_ibsim *,
                                                unsigned int id);
struct fabric_ibsim_client *fabric_ibsim_find_sm(struct fabric_ibsim *,
                                                 const void *node);
bool fabric_ibsim_send(struct fabric_ibsim *, struct fabric_ibsim_client *,
                       const struct fabric_ibsim_packet *);

#endif /* fabric-ibsim.h */
