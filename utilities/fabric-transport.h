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

#ifndef FABRIC_TRANSPORT_H
#define FABRIC_TRANSPORT_H 1

/* Sockets of the fabric: SEQPACKET over AF_UNIX, and UDP over IPv4. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "openvswitch/hmap.h"
#include "openvswitch/list.h"

struct ds;
struct sset;
struct fabric_transport;

/* Where messages come from and go to: a SEQPACKET connection, or the source
 * of UDP datagrams. */
struct fabric_endpoint {
    int kind;                   /* For fabric-transport.c. */
    int fd;                     /* The connection, or the UDP socket. */
    struct sockaddr_in sin;     /* UDP. */
    struct hmap_node node;      /* UDP, by address. */
    struct ovs_list list_node;  /* Connection; or, if dead, in 'dead'. */
    long long int heard;        /* When the last message came. */
    bool dead;
    void *owner;                /* The user's: the port, or NULL. */
};

struct fabric_transport_ops {
    /* A message came.  It stays where it is until the transport's next
     * fabric_transport_flush(). */
    void (*receive)(void *aux, struct fabric_endpoint *,
                    const void *msg, size_t len);
    /* An endpoint that has an owner ended or fell silent. */
    void (*closed)(void *aux, struct fabric_endpoint *);
    /* A queued message could not be sent. */
    void (*send_failed)(void *aux, struct fabric_endpoint *);
};

struct fabric_transport *fabric_transport_create(
    const struct fabric_transport_ops *, void *aux);
void fabric_transport_destroy(struct fabric_transport *);

char *fabric_transport_listen_unix(struct fabric_transport *,
                                   const char *path);
char *fabric_transport_listen_udp(struct fabric_transport *,
                                  const char *address);
void fabric_transport_format_addresses(const struct fabric_transport *,
                                       struct sset *);

void fabric_transport_run(struct fabric_transport *);
void fabric_transport_wait(struct fabric_transport *);

bool fabric_endpoint_is_udp(const struct fabric_endpoint *);
void fabric_endpoint_format(const struct fabric_endpoint *, struct ds *);
void fabric_endpoint_close(struct fabric_transport *,
                           struct fabric_endpoint *);

void fabric_transport_queue(struct fabric_transport *,
                            struct fabric_endpoint *,
                            const void *msg, size_t len);
int fabric_transport_send(struct fabric_transport *, struct fabric_endpoint *,
                          const void *msg, size_t len);
void fabric_transport_flush(struct fabric_transport *);

#endif /* fabric-transport.h */
