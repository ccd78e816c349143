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

#include <config.h>
#include "fabric-ibsim.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "socket-util.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(fabric_ibsim);

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(20, 20);

#define CTL_MAGIC 0xdeadbeef
/* Datagrams that a client's socket is good for in one turn. */
#define BATCH 64
#define SNDBUF (4 << 20)
/* So often it is looked whether clients are still there. */
#define REAP_MS 500

enum ctl_type {
    CTL_ERROR,
    CTL_CONNECT,
    CTL_DISCONNECT,
    CTL_GET_PORT,
    CTL_GET_VENDOR,
    CTL_GET_GID,
    CTL_GET_GUID,
    CTL_GET_NODE_INFO,
    CTL_GET_PORT_INFO,
    CTL_SET_IS_SM,
    CTL_GET_PKEYS,
};

/* A control message, in host byte order. */
struct ctl {
    uint32_t magic;
    uint32_t client;
    uint32_t type;              /* enum ctl_type. */
    uint32_t len;
    uint8_t data[64];
};

/* Data of CTL_CONNECT. */
struct ctl_connect {
    uint32_t id;                /* The client's process; our number for it. */
    uint32_t qpn;
    uint32_t is_sm;
    char node[FABRIC_IBSIM_NODE_LEN];
};

struct fabric_ibsim {
    char *name;
    int ctl_fd;
    struct fabric_ibsim_client clients[FABRIC_IBSIM_CLIENTS];
    size_t n_clients;
    long long int reap_at;
    const struct fabric_ibsim_ops *ops;
    void *aux;
};

/* Composes the address of NAME:SUFFIX, of which a null byte at the end is a
 * part.  Returns its length, or 0 if it would be too long. */
static socklen_t
make_address(const char *name, const char *suffix, struct sockaddr_un *sun)
{
    int n;

    memset(sun, 0, sizeof *sun);
    sun->sun_family = AF_UNIX;
    n = snprintf(sun->sun_path + 1, sizeof sun->sun_path - 1, "%s:%s", name,
                 suffix);
    if (n < 0 || n + 2 > sizeof sun->sun_path) {
        return 0;
    }
    return offsetof(struct sockaddr_un, sun_path) + n + 2;
}

static int
bind_socket(const char *name, const char *suffix, int *fdp)
{
    struct sockaddr_un sun;
    socklen_t len = make_address(name, suffix, &sun);
    int fd, error;

    if (!len) {
        return ENAMETOOLONG;
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return errno;
    }
    if (bind(fd, (struct sockaddr *) &sun, len)) {
        error = errno;
        close(fd);
        return error;
    }
    *fdp = fd;
    return 0;
}

/* Starts to serve the simulation 'name'.  Returns NULL, or an error, which the
 * caller must free. */
char *
fabric_ibsim_open(const char *name, const struct fabric_ibsim_ops *ops,
                  void *aux, struct fabric_ibsim **ibsimp)
{
    struct fabric_ibsim *ibsim;
    int fd, error;

    error = bind_socket(name, "ctl", &fd);
    if (error) {
        return xasprintf("%s: %s", name, ovs_strerror(error));
    }
    ibsim = xzalloc(sizeof *ibsim);
    ibsim->name = xstrdup(name);
    ibsim->ctl_fd = fd;
    ibsim->ops = ops;
    ibsim->aux = aux;
    for (int i = 0; i < FABRIC_IBSIM_CLIENTS; i++) {
        ibsim->clients[i].id = i;
        ibsim->clients[i].fd = -1;
    }
    *ibsimp = ibsim;
    return NULL;
}

static void
client_close(struct fabric_ibsim *ibsim, struct fabric_ibsim_client *client)
{
    bool was_sm = client->is_sm;

    VLOG_INFO_RL(&rl, "process %"PRIu32" went away from client %d",
                 client->pid, client->id);
    close(client->fd);
    client->fd = -1;
    client->is_sm = false;
    ibsim->n_clients--;
    if (was_sm) {
        ibsim->ops->sm_changed(ibsim->aux, client);
    }
}

void
fabric_ibsim_close(struct fabric_ibsim *ibsim)
{
    if (ibsim) {
        for (int i = 0; i < FABRIC_IBSIM_CLIENTS; i++) {
            if (ibsim->clients[i].fd >= 0) {
                close(ibsim->clients[i].fd);
            }
        }
        close(ibsim->ctl_fd);
        free(ibsim->name);
        free(ibsim);
    }
}

const char *
fabric_ibsim_name(const struct fabric_ibsim *ibsim)
{
    return ibsim->name;
}

/* Returns client 'id', or NULL if there is none of that number. */
struct fabric_ibsim_client *
fabric_ibsim_client(struct fabric_ibsim *ibsim, unsigned int id)
{
    return (id < FABRIC_IBSIM_CLIENTS && ibsim->clients[id].fd >= 0
            ? &ibsim->clients[id] : NULL);
}

/* Returns the client that is a subnet manager on 'node', or NULL. */
struct fabric_ibsim_client *
fabric_ibsim_find_sm(struct fabric_ibsim *ibsim, const void *node)
{
    for (int i = 0; i < FABRIC_IBSIM_CLIENTS; i++) {
        struct fabric_ibsim_client *client = &ibsim->clients[i];

        if (client->fd >= 0 && client->is_sm && client->node == node) {
            return client;
        }
    }
    return NULL;
}

/* Sends 'packet' to 'client'.  Returns false if it does not take it, or is
 * no more. */
bool
fabric_ibsim_send(struct fabric_ibsim *ibsim,
                  struct fabric_ibsim_client *client,
                  const struct fabric_ibsim_packet *packet)
{
    if (send(client->fd, packet, sizeof *packet, 0) < 0) {
        VLOG_INFO_RL(&rl, "client %d does not take a datagram: %s",
                     client->id, ovs_strerror(errno));
        if (errno != EAGAIN && errno != ENOBUFS) {
            client_close(ibsim, client);
        }
        return false;
    }
    return true;
}

/* Control messages. */

/* Closes clients whose process has ended without a word. */
static void
reap_clients(struct fabric_ibsim *ibsim)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return;
    }
    for (int i = 0; i < FABRIC_IBSIM_CLIENTS; i++) {
        struct fabric_ibsim_client *client = &ibsim->clients[i];
        struct sockaddr_un sun;
        char suffix[16];
        socklen_t len;

        if (client->fd < 0) {
            continue;
        }
        snprintf(suffix, sizeof suffix, "in%"PRIu32, client->pid);
        len = make_address(ibsim->name, suffix, &sun);
        if (connect(fd, (struct sockaddr *) &sun, len)
            && errno == ECONNREFUSED) {
            client_close(ibsim, client);
        }
    }
    close(fd);
}

/* Opens the socket of 'client' for process 'pid'. */
static int
client_open(struct fabric_ibsim *ibsim, struct fabric_ibsim_client *client,
            uint32_t pid)
{
    char suffix[16];
    struct sockaddr_un sun;
    socklen_t len;
    int fd, error, sndbuf = SNDBUF;

    snprintf(suffix, sizeof suffix, "out%d", client->id);
    error = bind_socket(ibsim->name, suffix, &fd);
    if (error) {
        return error;
    }
    snprintf(suffix, sizeof suffix, "in%"PRIu32, pid);
    len = make_address(ibsim->name, suffix, &sun);
    if (!len || connect(fd, (struct sockaddr *) &sun, len)) {
        error = len ? errno : ENAMETOOLONG;
        close(fd);
        return error;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &sndbuf, sizeof sndbuf)) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf);
    }
    client->fd = fd;
    client->pid = pid;
    ibsim->n_clients++;
    client->is_sm = false;
    return 0;
}

static bool
handle_connect(struct fabric_ibsim *ibsim, struct ctl *ctl)
{
    struct fabric_ibsim_client *client = NULL;
    struct ctl_connect info;
    void *node;
    int error;

    reap_clients(ibsim);
    memcpy(&info, ctl->data, sizeof info);
    info.node[sizeof info.node - 1] = '\0';
    node = ibsim->ops->find_node(ibsim->aux, info.node);
    if (!node) {
        VLOG_WARN_RL(&rl, "process %"PRIu32" wants to be node \"%s\", and "
                     "there is none", info.id, info.node);
        return false;
    }
    for (int i = 0; i < FABRIC_IBSIM_CLIENTS && !client; i++) {
        if (ibsim->clients[i].fd < 0) {
            client = &ibsim->clients[i];
        }
    }
    if (!client) {
        VLOG_WARN_RL(&rl, "process %"PRIu32" is refused: there are %d clients "
                     "already", info.id, FABRIC_IBSIM_CLIENTS);
        return false;
    }
    error = client_open(ibsim, client, info.id);
    if (error) {
        VLOG_WARN_RL(&rl, "process %"PRIu32" cannot be reached: %s", info.id,
                     ovs_strerror(error));
        return false;
    }
    client->node = node;
    VLOG_INFO_RL(&rl, "process %"PRIu32" is client %d, on node \"%s\"",
                 info.id, client->id, info.node);
    info.id = client->id;
    memcpy(ctl->data, &info, sizeof info);
    return true;
}

static void
set_is_sm(struct fabric_ibsim *ibsim, struct fabric_ibsim_client *client,
          bool is_sm)
{
    if (client->is_sm != is_sm) {
        client->is_sm = is_sm;
        ibsim->ops->sm_changed(ibsim->aux, client);
    }
}

static void
get_vendor(struct ctl *ctl)
{
    /* Vendor, part and hardware, all 0; then the firmware. */
    uint64_t fw_version = 1;

    memset(ctl->data, 0, sizeof ctl->data);
    memcpy(ctl->data + 16, &fw_version, sizeof fw_version);
}

static void
get_port(struct fabric_ibsim *ibsim, struct fabric_ibsim_client *client,
         struct ctl *ctl)
{
    uint8_t info[64];
    uint16_t lid;

    ibsim->ops->port_info(ibsim->aux, client->node, info);
    lid = info[16] << 8 | info[17];
    memcpy(ctl->data, &lid, sizeof lid);
    ctl->data[2] = info[32] & 0xf;
}

/* The node's GUID, and the GID that it makes with the port's prefix. */
static void
get_gid(struct fabric_ibsim *ibsim, struct fabric_ibsim_client *client,
        struct ctl *ctl)
{
    uint8_t node_info[64], port_info[64];

    ibsim->ops->node_info(ibsim->aux, client->node, node_info);
    ibsim->ops->port_info(ibsim->aux, client->node, port_info);
    if (ctl->type == CTL_GET_GID) {
        memcpy(ctl->data, port_info + 8, 8);
        memcpy(ctl->data + 8, node_info + 12, 8);
    } else {
        memcpy(ctl->data, node_info + 12, 8);
    }
}

/* Does what 'ctl' asks for, and makes the answer of it.  Returns false if that
 * cannot be. */
static bool
handle_ctl(struct fabric_ibsim *ibsim, struct ctl *ctl)
{
    struct fabric_ibsim_client *client;
    uint32_t is_sm;

    if (ctl->type == CTL_CONNECT) {
        return handle_connect(ibsim, ctl);
    }
    client = fabric_ibsim_client(ibsim, ctl->client);
    if (!client) {
        return false;
    }
    switch (ctl->type) {
    case CTL_DISCONNECT:
        client_close(ibsim, client);
        return true;
    case CTL_GET_PORT:
        get_port(ibsim, client, ctl);
        return true;
    case CTL_GET_VENDOR:
        get_vendor(ctl);
        return true;
    case CTL_GET_GID:
    case CTL_GET_GUID:
        get_gid(ibsim, client, ctl);
        return true;
    case CTL_GET_NODE_INFO:
        ibsim->ops->node_info(ibsim->aux, client->node, ctl->data);
        return true;
    case CTL_GET_PORT_INFO:
        ibsim->ops->port_info(ibsim->aux, client->node, ctl->data);
        return true;
    case CTL_SET_IS_SM:
        memcpy(&is_sm, ctl->data, sizeof is_sm);
        set_is_sm(ibsim, client, is_sm);
        return true;
    case CTL_GET_PKEYS:
        ibsim->ops->pkeys(ibsim->aux, client->node,
                          ALIGNED_CAST(ovs_be16 *, ctl->data));
        return true;
    default:
        return false;
    }
}

static void
run_ctl(struct fabric_ibsim *ibsim)
{
    for (int i = 0; i < BATCH; i++) {
        struct sockaddr_un from;
        socklen_t from_len = sizeof from;
        struct ctl ctl;
        ssize_t n = recvfrom(ibsim->ctl_fd, &ctl, sizeof ctl, 0,
                             (struct sockaddr *) &from, &from_len);

        if (n < 0) {
            break;
        }
        if (n != sizeof ctl || ctl.magic != CTL_MAGIC) {
            VLOG_WARN_RL(&rl, "a control message of %"PRIdSIZE" bytes is none",
                         n);
            continue;
        }
        if (!handle_ctl(ibsim, &ctl)) {
            ctl.type = CTL_ERROR;
        }
        if (sendto(ibsim->ctl_fd, &ctl, sizeof ctl, 0,
                   (struct sockaddr *) &from, from_len) < 0) {
            VLOG_INFO_RL(&rl, "a control message could not be answered: %s",
                         ovs_strerror(errno));
        }
    }
}

static void
run_client(struct fabric_ibsim *ibsim, struct fabric_ibsim_client *client)
{
    for (int i = 0; i < BATCH && client->fd >= 0; i++) {
        struct fabric_ibsim_packet packet;
        ssize_t n = recv(client->fd, &packet, sizeof packet, 0);

        if (n == sizeof packet) {
            ibsim->ops->receive(ibsim->aux, client, &packet);
        } else if (n >= 0) {
            VLOG_WARN_RL(&rl, "a datagram of %"PRIdSIZE" bytes from client %d "
                         "is none", n, client->id);
        } else {
            if (errno != EAGAIN) {
                client_close(ibsim, client);
            }
            break;
        }
    }
}

void
fabric_ibsim_run(struct fabric_ibsim *ibsim)
{
    run_ctl(ibsim);
    for (int i = 0; i < FABRIC_IBSIM_CLIENTS; i++) {
        if (ibsim->clients[i].fd >= 0) {
            run_client(ibsim, &ibsim->clients[i]);
        }
    }
    if (ibsim->n_clients && time_msec() >= ibsim->reap_at) {
        ibsim->reap_at = time_msec() + REAP_MS;
        reap_clients(ibsim);
    }
}

void
fabric_ibsim_wait(struct fabric_ibsim *ibsim)
{
    poll_fd_wait(ibsim->ctl_fd, POLLIN);
    for (int i = 0; i < FABRIC_IBSIM_CLIENTS; i++) {
        if (ibsim->clients[i].fd >= 0) {
            poll_fd_wait(ibsim->clients[i].fd, POLLIN);
        }
    }
    if (ibsim->n_clients) {
        poll_timer_wait_until(ibsim->reap_at);
    }
}
