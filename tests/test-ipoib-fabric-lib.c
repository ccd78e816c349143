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
#undef NDEBUG
#include "test-ipoib-fabric.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "jsonrpc.h"
#include "openvswitch/dynamic-string.h"
#include "timeval.h"
#include "unixctl.h"
#include "util.h"

#define TIMEOUT_MS 5000

const char *tf_address;
static struct jsonrpc *daemon_rpc;
static uint64_t next_tid = 0x1122334400000001;

void
tf_check(bool ok, const char *file, int line, const char *what)
{
    if (!ok) {
        ovs_fatal(0, "%s:%d: not so: %s", file, line, what);
    }
}

void
tf_check_eq(uint64_t a, uint64_t b, const char *file, int line,
            const char *what)
{
    if (a != b) {
        ovs_fatal(0, "%s:%d: %s is 0x%"PRIx64", not 0x%"PRIx64, file, line,
                  what, a, b);
    }
}

/* Ports. */

static int
open_unix(const char *path)
{
    struct sockaddr_un sun = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    ovs_strlcpy(sun.sun_path, path, sizeof sun.sun_path);
    if (fd < 0 || connect(fd, (struct sockaddr *) &sun, sizeof sun)) {
        ovs_fatal(errno, "%s: connect", path);
    }
    return fd;
}

static int
open_udp(const char *address)
{
    struct sockaddr_in sin = { .sin_family = AF_INET };
    char *host = xstrdup(address);
    char *colon = strrchr(host, ':');
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    *colon = '\0';
    inet_pton(AF_INET, host, &sin.sin_addr);
    sin.sin_port = htons(atoi(colon + 1));
    free(host);
    if (fd < 0 || connect(fd, (struct sockaddr *) &sin, sizeof sin)) {
        ovs_fatal(errno, "%s: connect", address);
    }
    return fd;
}

/* Opens a connection to the fabric, without an ATTACH. */
struct tf_port *
tf_open(void)
{
    struct tf_port *port = xzalloc(sizeof *port);

    port->udp = !strncmp(tf_address, "udp:", 4);
    port->fd = (port->udp ? open_udp(tf_address + 4)
                : open_unix(tf_address + strlen("unix:")));
    port->pkey = IB_PKEY_DEFAULT;
    return port;
}

void
tf_send_raw(struct tf_port *port, const void *msg, size_t n)
{
    if (send(port->fd, msg, n, MSG_NOSIGNAL) != n) {
        ovs_fatal(errno, "send");
    }
}

void
tf_send_message(struct tf_port *port, enum ib_soft_type type,
                const void *body, size_t n)
{
    uint8_t msg[IB_SOFT_MSG_MAX + 64];
    struct ib_soft_header header = {
        htons(IB_SOFT_MAGIC), IB_SOFT_VERSION, type
    };

    ovs_assert(n + sizeof header <= sizeof msg);
    memcpy(msg, &header, sizeof header);
    if (n) {
        memcpy(msg + sizeof header, body, n);
    }
    tf_send_raw(port, msg, n + sizeof header);
}

void
tf_send_attach(struct tf_port *port, uint64_t guid, uint8_t max_mtu,
               const char *description)
{
    struct ib_soft_attach attach;

    memset(&attach, 0, sizeof attach);
    attach.node_guid[0] = htonl(guid >> 32);
    attach.node_guid[1] = htonl(guid - 1);
    attach.port_guid[0] = htonl(guid >> 32);
    attach.port_guid[1] = htonl(guid);
    attach.max_mtu = max_mtu;
    memcpy(attach.description, description,
           MIN(strlen(description), sizeof attach.description));
    port->guid = guid;
    port->max_mtu = max_mtu;
    tf_send_message(port, IB_SOFT_ATTACH, &attach.h + 1,
                    sizeof attach - sizeof attach.h);
}

/* Attaches a port and waits for its PORT. */
struct tf_port *
tf_attach(uint64_t guid)
{
    struct tf_port *port = tf_open();
    char *description = xasprintf("test %"PRIx64, guid & 0xffff);

    tf_send_attach(port, guid, 5, description);
    tf_expect_port(port);
    free(description);
    return port;
}

void
tf_close(struct tf_port *port)
{
    if (port->udp) {
        tf_send_message(port, IB_SOFT_DETACH, NULL, 0);
    }
    close(port->fd);
    free(port);
}

static void
handle_port(struct tf_port *port, const uint8_t *msg, size_t n)
{
    struct ib_soft_port head;

    CHECK(n >= IB_SOFT_PORT_LEN);
    memcpy(&head, msg, IB_SOFT_PORT_LEN);
    port->state = head.state;
    port->lmc = head.lmc;
    port->lid = ntohs(head.lid);
    port->sm_lid = ntohs(head.sm_lid);
    port->prefix = ((uint64_t) ntohl(head.gid_prefix[0]) << 32
                    | ntohl(head.gid_prefix[1]));
    port->mtu = head.active_mtu;
    port->flags = head.flags;
    port->n_pkeys = ntohs(head.n_pkeys);
    CHECK(port->n_pkeys >= 1 && port->n_pkeys <= IB_SOFT_MAX_PKEYS);
    CHECK_EQ(n, IB_SOFT_PORT_LEN + 2 * port->n_pkeys);
    for (int i = 0; i < port->n_pkeys; i++) {
        ovs_be16 pkey;

        memcpy(&pkey, msg + IB_SOFT_PORT_LEN + 2 * i, sizeof pkey);
        port->pkeys[i] = ntohs(pkey);
    }
    port->n_ports++;
    port->n_reregisters += head.flags & IB_SOFT_PORT_REREGISTER;
}

/* Takes the next message for 'port'.  Returns its type, or 0 if none came
 * within 'timeout_ms', or if the connection ended. */
enum ib_soft_type
tf_receive(struct tf_port *port, int timeout_ms)
{
    uint8_t msg[IB_SOFT_MSG_MAX + 1];
    struct pollfd pfd = { .fd = port->fd, .events = POLLIN };
    ssize_t n;

    if (poll(&pfd, 1, timeout_ms) <= 0) {
        return 0;
    }
    n = recv(port->fd, msg, sizeof msg, MSG_DONTWAIT);
    if (n <= 0) {
        port->closed = true;
        return 0;
    }
    CHECK(n >= 4 && msg[0] == 'I' && msg[1] == 'B' && msg[2] == 1);
    switch (msg[3]) {
    case IB_SOFT_PORT:
        handle_port(port, msg, n);
        break;
    case IB_SOFT_PORTCAP:
        CHECK(n >= IB_SOFT_PORTCAP_LEN);
        port->caps = msg[4];
        break;
    case IB_SOFT_PACKET:
        port->packet_len = n - 4;
        memcpy(port->packet, msg + 4, port->packet_len);
        break;
    default:
        ovs_fatal(0, "message of type %d from the fabric", msg[3]);
    }
    return msg[3];
}

/* Waits for a PORT, past other messages. */
void
tf_expect_port(struct tf_port *port)
{
    int n_ports = port->n_ports;

    while (port->n_ports == n_ports) {
        if (!tf_receive(port, TIMEOUT_MS)) {
            ovs_fatal(0, "port %"PRIx64": no PORT came", port->guid);
        }
    }
}

/* Waits for a packet, past other messages. */
void
tf_expect_packet(struct tf_port *port, struct ib_ud *ud)
{
    enum ib_soft_type type;
    const char *error;

    do {
        type = tf_receive(port, TIMEOUT_MS);
        if (!type) {
            ovs_fatal(0, "port %"PRIx64": no packet came", port->guid);
        }
    } while (type != IB_SOFT_PACKET);
    error = ib_ud_parse(port->packet, port->packet_len, ud);
    if (error) {
        ovs_fatal(0, "port %"PRIx64": bad packet: %s", port->guid, error);
    }
}

/* Waits for a packet, which must be one of tf_send_text(). */
void
tf_expect_payload(struct tf_port *port, const char *payload)
{
    struct ib_ud ud;

    tf_expect_packet(port, &ud);
    if (ud.payload_len != strlen(payload)
        || memcmp(ud.payload, payload, ud.payload_len)) {
        ovs_fatal(0, "port %"PRIx64": payload \"%.*s\", not \"%s\"",
                  port->guid, (int) ud.payload_len,
                  (const char *) ud.payload, payload);
    }
}

/* Checks that no packet comes for 'ms' milliseconds. */
void
tf_expect_silence(struct tf_port *port, int ms)
{
    long long int end = time_msec() + ms;

    for (;;) {
        long long int left = end - time_msec();
        enum ib_soft_type type = tf_receive(port, MAX(left, 0));

        CHECK(type != IB_SOFT_PACKET);
        if (!type) {
            return;
        }
    }
}

struct ib_gid
tf_gid(const struct tf_port *port)
{
    return ib_gid_make(port->prefix, port->guid);
}

/* Returns a packet from 'port', to be changed and sent. */
struct ib_ud
tf_ud(const struct tf_port *port, uint16_t dlid, uint32_t dqpn,
      const void *payload, size_t n)
{
    return (struct ib_ud) {
        .slid = port->lid,
        .dlid = dlid,
        .opcode = IB_OPCODE_UD_SEND,
        .pkey = port->pkey,
        .dqpn = dqpn,
        .sqpn = 0x200,
        .qkey = 0xb1b,
        .payload = payload,
        .payload_len = n,
    };
}

void
tf_send_ud(struct tf_port *port, const struct ib_ud *ud)
{
    uint8_t buf[IB_UD_PACKET_MAX], trailer[IB_UD_TRAILER_MAX];
    size_t n, trailer_len;

    n = ib_ud_compose(ud, buf, trailer, &trailer_len);
    memcpy(buf + n, ud->payload, ud->payload_len);
    n += ud->payload_len;
    memcpy(buf + n, trailer, trailer_len);
    tf_send_message(port, IB_SOFT_PACKET, buf, n + trailer_len);
}

void
tf_send_text(struct tf_port *port, uint16_t dlid, uint32_t dqpn,
             const char *payload)
{
    struct ib_ud ud = tf_ud(port, dlid, dqpn, payload, strlen(payload));

    tf_send_ud(port, &ud);
}

/* Management datagrams. */

void
tf_init_mad(struct ib_sa_mad *mad, uint8_t method, uint16_t attr,
            uint64_t mask, const void *data, size_t n)
{
    ovs_be64 tid = htonll(next_tid++);

    memset(mad, 0, sizeof *mad);
    mad->base_version = IB_MAD_BASE_VERSION;
    mad->mgmt_class = IB_MGMT_CLASS_SA;
    mad->class_version = IB_SA_CLASS_VERSION;
    mad->method = method;
    memcpy(&mad->tid, &tid, sizeof tid);
    mad->attr_id = htons(attr);
    mad->comp_mask[0] = htonl(mask >> 32);
    mad->comp_mask[1] = htonl(mask);
    if (n) {
        memcpy(mad->data, data, n);
    }
}

void
tf_send_mad(struct tf_port *port, const struct ib_sa_mad *mad)
{
    struct ib_ud ud = tf_ud(port, port->sm_lid, IB_QPN_GSI, mad, sizeof *mad);

    ud.qkey = IB_QKEY_GSI;
    tf_send_ud(port, &ud);
}

/* Waits for a management datagram, and checks what surrounds it. */
void
tf_expect_mad(struct tf_port *port, struct ib_sa_mad *mad)
{
    struct ib_ud ud;

    tf_expect_packet(port, &ud);
    CHECK_EQ(ud.slid, port->sm_lid);
    CHECK_EQ(ud.dlid, port->lid);
    CHECK_EQ(ud.dqpn, 0x200);
    CHECK_EQ(ud.sqpn, IB_QPN_GSI);
    CHECK_EQ(ud.qkey, IB_QKEY_GSI);
    CHECK_EQ(ud.pkey, port->pkey | IB_PKEY_FULL);
    CHECK_EQ(ud.payload_len, sizeof *mad);
    memcpy(mad, ud.payload, sizeof *mad);
}

/* Makes a request of the SA and waits for the answer.  Returns its status. */
uint16_t
tf_sa(struct tf_port *port, uint8_t method, uint16_t attr, uint64_t mask,
      const void *data, size_t n, struct ib_sa_mad *answer)
{
    struct ib_sa_mad mad;

    tf_init_mad(&mad, method, attr, mask, data, n);
    tf_send_mad(port, &mad);
    tf_expect_mad(port, answer);
    CHECK(!memcmp(&answer->tid, &mad.tid, sizeof mad.tid));
    CHECK_EQ(ntohs(answer->attr_id), attr);
    CHECK_EQ(answer->method, (method == IB_METHOD_SET ? IB_METHOD_GET_RESP
                              : method | IB_METHOD_RESP));
    return ntohs(answer->status);
}

/* The MGID of an IPv4 group on the default P_Key. */
struct ib_gid
tf_mgid(uint32_t ip)
{
    return ib_gid_make(UINT64_C(0xff12401bffff0000), ip & 0x0fffffff);
}

/* Joins 'mgid', as Linux does: with what a creation needs if 'create'.
 * Returns the status and, if 'record' is not NULL, stores the answer there. */
uint16_t
tf_join(struct tf_port *port, const struct ib_gid *mgid, uint8_t state,
        bool create, struct ib_mcmember_record *record)
{
    struct ib_mcmember_record r;
    struct ib_sa_mad answer;
    uint16_t status;

    memset(&r, 0, sizeof r);
    r.mgid = *mgid;
    r.port_gid = tf_gid(port);
    r.pkey = htons(0xffff);
    r.scope_join = state;
    if (create) {
        r.qkey = htonl(0xb1b);
        r.mtu = IB_SELECTOR_EXACTLY << 6 | 4;
        r.rate = IB_SELECTOR_EXACTLY << 6 | 3;
    }
    status = tf_sa(port, IB_METHOD_SET, IB_ATTR_MCMEMBER_RECORD,
                   create ? IB_MCM_MASK_CREATE : IB_MCM_MASK_JOIN_BROADCAST,
                   &r, sizeof r, &answer);
    if (record) {
        memcpy(record, answer.data, sizeof *record);
    }
    return status;
}

uint16_t
tf_leave(struct tf_port *port, const struct ib_gid *mgid, uint8_t state)
{
    struct ib_mcmember_record r;
    struct ib_sa_mad answer;

    memset(&r, 0, sizeof r);
    r.mgid = *mgid;
    r.port_gid = tf_gid(port);
    r.scope_join = state;
    return tf_sa(port, IB_METHOD_DELETE, IB_ATTR_MCMEMBER_RECORD,
                 IB_MCM_MASK_LEAVE, &r, sizeof r, &answer);
}

/* Asks for the path to the port 'guid', as Linux does. */
uint16_t
tf_path(struct tf_port *port, uint64_t guid, uint16_t pkey,
        struct ib_path_record *path)
{
    struct ib_path_record want;
    struct ib_sa_mad answer;
    uint16_t status;

    memset(&want, 0, sizeof want);
    want.dgid = ib_gid_make(port->prefix, guid);
    want.sgid = tf_gid(port);
    want.numb_path = 1;
    want.pkey = htons(pkey);
    status = tf_sa(port, IB_METHOD_GET, IB_ATTR_PATH_RECORD, IB_PR_MASK_IPOIB,
                   &want, sizeof want, &answer);
    memcpy(path, answer.data, sizeof *path);
    return status;
}

/* Asks for a table and acknowledges 'window' segments at a time.  Returns the
 * number of records, and stores them and their distance.  The caller must free
 * the records. */
size_t
tf_table(struct tf_port *port, uint16_t attr, uint64_t mask, const void *data,
         size_t n, uint32_t window, uint8_t **records, size_t *step)
{
    uint32_t segment = 0, window_last = 1;
    struct ib_sa_mad request, mad;
    size_t len = 0;

    *records = NULL;
    tf_init_mad(&request, IB_METHOD_GET_TABLE, attr, mask, data, n);
    tf_send_mad(port, &request);
    do {
        size_t paylen;

        tf_expect_mad(port, &mad);
        CHECK_EQ(mad.method, IB_METHOD_GET_TABLE_RESP);
        CHECK(!memcmp(&mad.tid, &request.tid, sizeof mad.tid));
        CHECK(!mad.status);
        CHECK_EQ(mad.rmpp_version, IB_RMPP_VERSION);
        CHECK_EQ(mad.rmpp_type, IB_RMPP_TYPE_DATA);
        CHECK(mad.rmpp_flags & IB_RMPP_FLAG_ACTIVE);
        CHECK_EQ(ntohl(mad.rmpp_data1), ++segment);
        CHECK(segment <= window_last);
        CHECK_EQ(!!(mad.rmpp_flags & IB_RMPP_FLAG_FIRST), segment == 1);
        paylen = ntohl(mad.rmpp_data2);
        if (!(mad.rmpp_flags & IB_RMPP_FLAG_LAST)) {
            paylen = IB_SA_DATA_LEN + 20;
        }
        CHECK(paylen >= 20 && paylen <= IB_SA_DATA_LEN + 20);
        *records = xrealloc(*records, len + IB_SA_DATA_LEN);
        memcpy(*records + len, mad.data, paylen - 20);
        len += paylen - 20;

        if (segment == window_last || mad.rmpp_flags & IB_RMPP_FLAG_LAST) {
            struct ib_sa_mad ack = request;

            window_last = segment + window;
            ack.rmpp_version = IB_RMPP_VERSION;
            ack.rmpp_type = IB_RMPP_TYPE_ACK;
            ack.rmpp_flags = IB_RMPP_FLAG_ACTIVE;
            ack.rmpp_data1 = htonl(segment);
            ack.rmpp_data2 = htonl(window_last);
            tf_send_mad(port, &ack);
        }
    } while (!(mad.rmpp_flags & IB_RMPP_FLAG_LAST));
    *step = ntohs(mad.attr_offset) * 8;
    CHECK(!len || (*step && !(len % *step)));
    return len ? len / *step : 0;
}

/* The daemon's commands. */

void
tf_connect_daemon(const char *unixctl_path)
{
    int error = unixctl_client_create(unixctl_path, &daemon_rpc);

    if (error) {
        ovs_fatal(error, "%s", unixctl_path);
    }
}

static char *
transact(bool must_fail, const char *command, va_list args)
{
    char *argv[16], *result, *error;
    int argc = 0, retval;
    const char *arg;

    while ((arg = va_arg(args, const char *))) {
        ovs_assert(argc < ARRAY_SIZE(argv));
        argv[argc++] = CONST_CAST(char *, arg);
    }
    retval = unixctl_client_transact(daemon_rpc, command, argc, argv,
                                     &result, &error);
    if (retval) {
        ovs_fatal(retval, "%s", command);
    }
    if (must_fail != !!error) {
        ovs_fatal(0, "%s %s: %s", command, argc ? argv[0] : "",
                  error ? error : "should have failed");
    }
    return error ? error : result;
}

/* Runs a command of the daemon, with words up to a NULL.  Returns its output,
 * which the caller must free. */
char *
tf_appctl(const char *command, ...)
{
    va_list args;
    char *result;

    va_start(args, command);
    result = transact(false, command, args);
    va_end(args);
    return result;
}

/* The same for a command that must fail.  Returns the error. */
char *
tf_appctl_fails(const char *command, ...)
{
    va_list args;
    char *result;

    va_start(args, command);
    result = transact(true, command, args);
    va_end(args);
    return result;
}

/* Runs a command whose output does not matter. */
void
tf_do(const char *command, ...)
{
    va_list args;

    va_start(args, command);
    free(transact(false, command, args));
    va_end(args);
}

/* Returns a counter of the fabric. */
uint64_t
tf_counter(const char *name)
{
    char *s = tf_appctl("fabric/counters", NULL);
    char *key = xasprintf("\n%s ", name);
    char *all = xasprintf("\n%s", s);
    char *p = strstr(all, key);
    uint64_t value;

    if (!p) {
        ovs_fatal(0, "no counter %s", name);
    }
    value = strtoull(p + strlen(key), NULL, 10);
    free(all);
    free(key);
    free(s);
    return value;
}
