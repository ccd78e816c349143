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

/* An InfiniBand subnet in software: Documentation/topics/soft-fabric.rst. */

#include <config.h>

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "command-line.h"
#include "daemon.h"
#include "dirs.h"
#include "fabric-commands.h"
#include "fabric-fault.h"
#include "fabric-forward.h"
#include "fabric-groups.h"
#include "fabric-inform.h"
#include "fabric-opensm.h"
#include "fabric-pcap.h"
#include "fabric-ports.h"
#include "fabric-rmpp.h"
#include "fabric-sa-records.h"
#include "fabric-sa.h"
#include "fabric-switch.h"
#include "fabric-transport.h"
#include "fabric.h"
#include "fatal-signal.h"
#include "ipoib-compat.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "process.h"
#include "timeval.h"
#include "unixctl.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ovs_ipoib_fabric);

/* What the command line asks for besides the configuration of the fabric. */
struct options {
    char *unix_path;
    char *udp_address;
    char *pcap_name;
    char *unixctl_path;
    char *opensm_name;          /* NULL: the built-in subnet manager. */
    int n_switches;             /* 0: not said. */
    const char *builtin_only;   /* An option of the built-in manager's. */
};

static void parse_options(int argc, char *argv[], struct fabric *,
                          struct options *);
OVS_NO_RETURN static void usage(void);

const char *
fabric_counter_name(enum fabric_counter counter)
{
    static const char *const names[] = {
#define FABRIC_COUNTER(NAME) #NAME,
        FABRIC_COUNTERS
#undef FABRIC_COUNTER
    };

    return names[counter];
}

/* Callbacks. */

static void
receive_cb(void *fabric_, struct fabric_endpoint *ep, const void *msg,
           size_t len)
{
    struct fabric *fabric = fabric_;
    struct fabric_port *port = ep->owner;
    struct ib_soft_header header;

    if (len < sizeof header) {
        fabric_count(fabric, port, FC_drop_bad_message);
        return;
    }
    memcpy(&header, msg, sizeof header);
    if (header.magic != htons(IB_SOFT_MAGIC)
        || header.version != IB_SOFT_VERSION || len > IB_SOFT_MSG_MAX) {
        fabric_count(fabric, port, FC_drop_bad_message);
        return;
    }
    if (header.type == IB_SOFT_ATTACH) {
        struct ib_soft_attach attach;

        if (len < sizeof attach) {
            fabric_count(fabric, port, FC_drop_bad_attach);
        } else {
            memcpy(&attach, msg, sizeof attach);
            fabric_attach(fabric, ep, &attach);
        }
    } else if (!port) {
        fabric_count(fabric, NULL, FC_drop_unattached);
    } else if (header.type == IB_SOFT_PACKET) {
        fabric_forward_input(fabric, port, msg, len);
    } else if (header.type == IB_SOFT_DETACH) {
        fabric_detach(fabric, port);
    } else {
        fabric_count(fabric, port, FC_drop_unknown_type);
    }
}

static void
closed_cb(void *fabric, struct fabric_endpoint *ep)
{
    fabric_detach(fabric, ep->owner);
}

static void
send_failed_cb(void *fabric, struct fabric_endpoint *ep)
{
    fabric_count(fabric, ep->owner, FC_drop_send_failed);
}

static void
port_lost_cb(struct fabric *fabric, struct fabric_port *port)
{
    fabric_opensm_forget_port(fabric, port);
    fabric_inform_forget_port(fabric, port);
    fabric_rmpp_forget_port(fabric, port);
    fabric_leave_all(fabric, port);
}

static const struct fabric_transport_ops transport_ops = {
    .receive = receive_cb,
    .closed = closed_cb,
    .send_failed = send_failed_cb,
};

/* The daemon. */

static struct fabric *
fabric_create(void)
{
    struct fabric *fabric = xzalloc(sizeof *fabric);

    fabric->cfg = (struct fabric_config) {
        .mtu = 4,
        .rate = 16,             /* 4x EDR: 100 Gb/s. */
        .group_rate = 3,        /* 10 Gb/s, as OpenSM has it. */
        .width = 2,
        .speed = 32,
        .timeout = 18,
        .qkey = 0xb1b,
        .prefix = IB_GID_PREFIX_DEFAULT,
        .pkeys = { IB_PKEY_DEFAULT },
        .n_pkeys = 1,
    };
    fabric->notify = fabric_inform_notify;
    fabric->port_lost = port_lost_cb;
    fabric->sm_input = fabric_sa_input;
    return fabric;
}

static void
fabric_start(struct fabric *fabric, const struct options *options)
{
    if (options->opensm_name) {
        char *error = fabric_opensm_create(fabric, options->opensm_name,
                                           options->n_switches);

        if (error) {
            ovs_fatal(0, "--sm=opensm:%s", error);
        }
    }
    fabric_fault_init(fabric);
    fabric_inform_init(fabric);
    fabric_rmpp_init(fabric);
    fabric_ports_init(fabric);
    fabric_groups_init(fabric);
    fabric_sa_init(fabric);
}

static void
fabric_destroy(struct fabric *fabric)
{
    fabric_rmpp_destroy(fabric);
    fabric_inform_destroy(fabric);
    fabric_sa_destroy(fabric);
    fabric_groups_destroy(fabric);
    fabric_transport_destroy(fabric->transport);
    fabric_ports_destroy(fabric);
    fabric_opensm_destroy(fabric);
    fabric_fault_destroy(fabric);
    fabric_pcap_close(fabric->pcap);
    free(fabric);
}

static void
fabric_run(struct fabric *fabric)
{
    fabric_transport_run(fabric->transport);
    fabric_opensm_run(fabric);
    fabric_ports_run(fabric);
    fabric_groups_run(fabric);
    fabric_fault_run(fabric, fabric_forward_resume);
    fabric_rmpp_run(fabric);
    fabric_inform_run(fabric);
    fabric_sa_run(fabric);
}

static void
fabric_wait(struct fabric *fabric)
{
    fabric_transport_wait(fabric->transport);
    fabric_opensm_wait(fabric);
    fabric_ports_wait(fabric);
    fabric_groups_wait(fabric);
    fabric_fault_wait(fabric);
    fabric_rmpp_wait(fabric);
    fabric_inform_wait(fabric);
    fabric_sa_wait(fabric);
}

static void
listen_or_die(struct fabric *fabric, const struct options *options)
{
    char *error = NULL;

    fabric->transport = fabric_transport_create(&transport_ops, fabric);
    if (options->unix_path) {
        error = fabric_transport_listen_unix(fabric->transport,
                                             options->unix_path);
    }
    if (!error && options->udp_address) {
        error = fabric_transport_listen_udp(fabric->transport,
                                            options->udp_address);
    }
    if (error) {
        ovs_fatal(0, "%s", error);
    }
    if (options->pcap_name) {
        int retval = fabric_pcap_open(options->pcap_name, &fabric->pcap);

        if (retval) {
            ovs_fatal(retval, "--pcap=%s", options->pcap_name);
        }
    }
}

static void
exit_command(struct unixctl_conn *conn, int argc OVS_UNUSED,
             const char *argv[] OVS_UNUSED, void *exiting_)
{
    bool *exiting = exiting_;

    *exiting = true;
    unixctl_command_reply(conn, NULL);
}

int
main(int argc, char *argv[])
{
    struct options options = { .unix_path = NULL };
    struct fabric *fabric = fabric_create();
    struct unixctl_server *unixctl;
    bool exiting = false;

    ovs_cmdl_proctitle_init(argc, argv);
    set_program_name(argv[0]);
    service_start(&argc, &argv);
    fatal_ignore_sigpipe();
    parse_options(argc, argv, fabric, &options);

    IPOIB_DAEMONIZE_START_PLAIN();
    fabric_start(fabric, &options);
    listen_or_die(fabric, &options);
    if (unixctl_server_create(options.unixctl_path, &unixctl)) {
        exit(EXIT_FAILURE);
    }
    unixctl_command_register("exit", "", 0, 0, exit_command, &exiting);
    fabric_commands_init(fabric);
    daemonize_complete();

    while (!exiting) {
        fabric_run(fabric);
        unixctl_server_run(unixctl);

        fabric_wait(fabric);
        unixctl_server_wait(unixctl);
        if (exiting) {
            poll_immediate_wake();
        }
        poll_block();
    }
    unixctl_server_destroy(unixctl);
    fabric_destroy(fabric);
    free(options.unix_path);
    free(options.udp_address);
    free(options.pcap_name);
    free(options.unixctl_path);
    free(options.opensm_name);
    service_stop();
    return 0;
}

/* Options. */

/* Width and speed of links by their rate. */
static const struct {
    uint8_t rate, width, speed;
} link_rates[] = {
    { 2, 1, 1 },                /* 1x SDR, 2.5 Gb/s. */
    { 3, 2, 1 },                /* 4x SDR, 10 Gb/s. */
    { 6, 2, 2 },                /* 4x DDR, 20 Gb/s. */
    { 7, 2, 4 },                /* 4x QDR, 40 Gb/s. */
    { 12, 2, 16 },              /* 4x FDR, 56 Gb/s. */
    { 16, 2, 32 },              /* 4x EDR, 100 Gb/s. */
    { 17, 2, 64 },              /* 4x HDR, 200 Gb/s. */
    { 21, 2, 128 },             /* 4x NDR, 400 Gb/s. */
};

static void
set_string(char **p, const char *s)
{
    free(*p);
    *p = xstrdup(s);
}

static void
parse_rate(const char *option, const char *s, struct fabric_config *cfg,
           bool links)
{
    char *tail;
    double gbps = strtod(s, &tail);

    for (size_t i = 0; tail != s && !*tail && i < ARRAY_SIZE(link_rates);
         i++) {
        uint8_t rate = link_rates[i].rate;

        if (gbps == fabric_sa_rate_value(rate) / 10.0) {
            if (links) {
                cfg->rate = rate;
                cfg->width = link_rates[i].width;
                cfg->speed = link_rates[i].speed;
            } else {
                cfg->group_rate = rate;
            }
            return;
        }
    }
    ovs_fatal(0, "--%s=%s: not 2.5, 10, 20, 40, 56, 100, 200 or 400 (Gb/s)",
              option, s);
}

static unsigned int
parse_number(const char *option, const char *s, unsigned int max)
{
    unsigned int x;

    if (!str_to_uint(s, 0, &x) || x > max) {
        ovs_fatal(0, "--%s=%s: not a number from 0 to %u", option, s, max);
    }
    return x;
}

static int
parse_switches(const char *s)
{
    int n = parse_number("switches", s, FABRIC_SWITCHES_MAX);

    if (!n) {
        ovs_fatal(0, "--switches=%s: at least one is needed", s);
    }
    return n;
}

static void
check(const char *option, char *error)
{
    if (error) {
        ovs_fatal(0, "--%s: %s", option, error);
    }
}

static void
parse_more_sls(const char *name, const char *s, struct fabric_config *cfg)
{
    char *list = xstrdup(s), *save = NULL;

    cfg->more_sls = 0;
    for (char *sl = strtok_r(list, ",", &save); sl;
         sl = strtok_r(NULL, ",", &save)) {
        cfg->more_sls |= 1u << parse_number(name, sl, 15);
    }
    free(list);
}

static void
parse_prefix(const char *s, struct fabric_config *cfg)
{
    unsigned long long int prefix;

    if (!str_to_ullong(s, 16, &prefix)) {
        ovs_fatal(0, "--prefix=%s: not a number of up to 16 hex digits", s);
    }
    cfg->prefix = prefix;
}

static void
parse_sm(const char *s, struct options *options)
{
    free(options->opensm_name);
    options->opensm_name = NULL;
    if (!strncmp(s, "opensm:", 7) && s[7]) {
        options->opensm_name = xstrdup(s + 7);
    } else if (strcmp(s, "builtin")) {
        ovs_fatal(0, "--sm=%s: neither builtin nor opensm:NAME", s);
    }
}

/* Checks that what the options say fits together, and makes file names
 * absolute, since daemons change their directory. */
static void
finish_options(const struct fabric *fabric, struct options *options)
{
    char *name = options->pcap_name;

    if (!options->unix_path && !options->udp_address) {
        ovs_fatal(0, "--unix=PATH or --udp=ADDR:PORT is required; "
                  "use --help for usage");
    }
    if (fabric_sa_rate_value(fabric->cfg.group_rate)
        > fabric_sa_rate_value(fabric->cfg.rate)) {
        ovs_fatal(0, "--group-rate must not exceed --rate");
    }
    if (options->opensm_name && options->builtin_only) {
        ovs_fatal(0, "--%s is not for --sm=opensm:NAME: OpenSM has options "
                  "of its own", options->builtin_only);
    }
    if (!options->opensm_name && options->n_switches) {
        ovs_fatal(0, "--switches is only for --sm=opensm:NAME");
    }
    options->n_switches = MAX(options->n_switches, 1);
    if (name) {
        options->pcap_name = abs_file_name(NULL, name);
        free(name);
    }
    if (options->unix_path) {
        name = options->unix_path;
        options->unix_path = abs_file_name(NULL, name);
        free(name);
    }
}

/* Numbers of long options. */
enum {
    OPT_UNIX = UCHAR_MAX + 1,
    OPT_UDP,
    OPT_PCAP,
    OPT_UNIXCTL,
    OPT_PKEYS,
    OPT_MTU,
    OPT_RATE,
    OPT_GROUP_RATE,
    OPT_SL,
    OPT_MORE_SLS,
    OPT_LMC,
    OPT_QKEY,
    OPT_PREFIX,
    OPT_SA_RATE,
    OPT_SM,
    OPT_SWITCHES,
    DAEMON_OPTION_ENUMS,
    VLOG_OPTION_ENUMS,
};

/* True if option 'c' says something that an OpenSM has options of its own
 * for. */
static bool
is_builtin_only(int c)
{
    return (c == OPT_PKEYS || c == OPT_GROUP_RATE || c == OPT_SL
            || c == OPT_MORE_SLS || c == OPT_LMC || c == OPT_QKEY
            || c == OPT_PREFIX);
}

static const struct option long_options[] = {
    {"unix",       required_argument, NULL, OPT_UNIX},
    {"udp",        required_argument, NULL, OPT_UDP},
    {"pcap",       required_argument, NULL, OPT_PCAP},
    {"unixctl",    required_argument, NULL, OPT_UNIXCTL},
    {"pkeys",      required_argument, NULL, OPT_PKEYS},
    {"mtu",        required_argument, NULL, OPT_MTU},
    {"rate",       required_argument, NULL, OPT_RATE},
    {"group-rate", required_argument, NULL, OPT_GROUP_RATE},
    {"sl",         required_argument, NULL, OPT_SL},
    {"more-sls",   required_argument, NULL, OPT_MORE_SLS},
    {"lmc",        required_argument, NULL, OPT_LMC},
    {"qkey",       required_argument, NULL, OPT_QKEY},
    {"prefix",     required_argument, NULL, OPT_PREFIX},
    {"sa-rate",    required_argument, NULL, OPT_SA_RATE},
    {"sm",         required_argument, NULL, OPT_SM},
    {"switches",   required_argument, NULL, OPT_SWITCHES},
    {"help",       no_argument, NULL, 'h'},
    {"version",    no_argument, NULL, 'V'},
    DAEMON_LONG_OPTIONS,
    VLOG_LONG_OPTIONS,
    {NULL, 0, NULL, 0},
};

/* Does what 'option', which says how the fabric is, asks for with the value
 * 's'.  Returns false if it is another one. */
static bool
apply_fabric_option(const struct option *option, const char *s,
                    struct fabric *fabric)
{
    struct fabric_config *cfg = &fabric->cfg;
    const char *name = option->name;

    switch (option->val) {
    case OPT_PKEYS:
        check(name, fabric_parse_pkeys(s, cfg->pkeys, &cfg->n_pkeys));
        return true;
    case OPT_MTU:
        check(name, fabric_parse_mtu(s, &cfg->mtu));
        return true;
    case OPT_RATE:
        parse_rate(name, s, cfg, true);
        return true;
    case OPT_GROUP_RATE:
        parse_rate(name, s, cfg, false);
        return true;
    case OPT_SL:
        cfg->sl = parse_number(name, s, 15);
        return true;
    case OPT_MORE_SLS:
        parse_more_sls(name, s, cfg);
        return true;
    case OPT_LMC:
        cfg->lmc = parse_number(name, s, 7);
        return true;
    case OPT_QKEY:
        cfg->qkey = parse_number(name, s, UINT32_MAX);
        return true;
    case OPT_PREFIX:
        parse_prefix(s, cfg);
        return true;
    case OPT_SA_RATE:
        fabric->sa_rate = parse_number(name, s, 1000000);
        return true;
    default:
        return false;
    }
}

/* The same for 'option' that goes into 'options'. */
static bool
apply_option(const struct option *option, const char *s,
             struct options *options)
{
    switch (option->val) {
    case OPT_UNIX:
        set_string(&options->unix_path, s);
        return true;
    case OPT_UDP:
        set_string(&options->udp_address, s);
        return true;
    case OPT_PCAP:
        set_string(&options->pcap_name, s);
        return true;
    case OPT_UNIXCTL:
        set_string(&options->unixctl_path, s);
        return true;
    case OPT_SM:
        parse_sm(s, options);
        return true;
    case OPT_SWITCHES:
        options->n_switches = parse_switches(s);
        return true;
    default:
        return false;
    }
}

static void
parse_options(int argc, char *argv[], struct fabric *fabric,
              struct options *options)
{
    char *short_options = ovs_cmdl_long_options_to_short_options(long_options);

    for (;;) {
        int index = 0;
        int c = getopt_long(argc, argv, short_options, long_options, &index);

        if (c == -1) {
            break;
        }
        if (is_builtin_only(c)) {
            options->builtin_only = long_options[index].name;
        }
        if (c == long_options[index].val
            && (apply_option(&long_options[index], optarg, options)
                || apply_fabric_option(&long_options[index], optarg,
                                       fabric))) {
            continue;
        }
        switch (c) {
        case 'h':
            usage();
        case 'V':
            ovs_print_version(0, 0);
            exit(EXIT_SUCCESS);
        VLOG_OPTION_HANDLERS
        DAEMON_OPTION_HANDLERS
        case '?':
            exit(EXIT_FAILURE);
        default:
            abort();
        }
    }
    free(short_options);
    if (optind < argc) {
        ovs_fatal(0, "%s: no arguments are taken; use --help for usage",
                  argv[optind]);
    }
    finish_options(fabric, options);
}

static void
usage(void)
{
    printf("%s: InfiniBand fabric in software\n"
           "usage: %s [OPTIONS]\n"
           "At least one of --unix and --udp is required.\n"
           "\nFabric options:\n"
           "  --unix=PATH             HCAs attach at the socket PATH\n"
           "  --udp=ADDR:PORT         HCAs attach over UDP (PORT 0: the kernel"
           " chooses)\n"
           "  --pkeys=PKEY[,PKEY]...  P_Key table of all ports (0xffff)\n"
           "  --mtu=MTU               of links and groups (2048)\n"
           "  --rate=GBPS             of links (100)\n"
           "  --group-rate=GBPS       of broadcast groups (10)\n"
           "  --sl=SL                 service level (0)\n"
           "  --more-sls=SL[,SL]...   others, for paths that ask for them\n"
           "  --lmc=LMC               of ports: 2^LMC LIDs each (0)\n"
           "  --qkey=QKEY             of broadcast groups (0x0b1b)\n"
           "  --prefix=PREFIX         GID prefix (fe80000000000000)\n"
           "  --sa-rate=N             answer N SA requests a second at most\n"
           "  --sm=builtin            the subnet manager is the fabric's own"
           " (default)\n"
           "  --sm=opensm:NAME        it is an OpenSM, preloaded with"
           " libumad2sim,\n"
           "                          in the simulation NAME\n"
           "  --switches=N            of an OpenSM's fabric, in a line (1)\n"
           "  --pcap=FILE             capture all packets in FILE\n",
           program_name, program_name);
    daemon_usage();
    vlog_usage();
    printf("\nOther options:\n"
           "  --unixctl=SOCKET        override default control socket name\n"
           "  -h, --help              display this help message\n"
           "  -V, --version           display version information\n");
    exit(EXIT_SUCCESS);
}
