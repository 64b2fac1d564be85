//! The command line: which commands there are and what they take.

use clap::{Parser, Subcommand};

use crate::client::{
    append, audit, capability, consumers, deliveries, dlq, doc, fact, garden, hooks, ingest, key,
    read, secret, streams, sub, trigger,
};
use crate::{config, serve, verify};

/// Durable streams of events over plain HTTP
#[derive(Debug, Parser)]
#[command(name = "reveille", version, arg_required_else_help = true)]
#[command(after_help = "\
Example:
  reveille serve &
  reveille append /notes --json '{\"text\":\"hello\"}'
  reveille read /notes --follow

Exit codes: 0 done, 1 failed, 2 wrong usage. `reveille help COMMAND` says more about a command.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs the server
    #[command(after_help = "\
A setting comes from its flag, else from its environment variable, else from the file given by
--config. In the file its key is the flag's name without the dashes in front, and times and sizes
are text:

  listen = \"127.0.0.1:4437\"
  data-dir = \"/var/lib/reveille\"
  long-poll-timeout = \"45s\"
  max-body = \"16MiB\"

Times are written 500ms, 45s, 10m, 1h, 3d; sizes in bytes or as 64KiB, 256MiB, 2GiB.

When the server is ready it prints `listening on http://ADDR` on standard output. Its log goes to
standard error, as JSON unless that is a terminal; REVEILLE_LOG_FILTER or RUST_LOG say what is
logged [default: info]. SIGINT and SIGTERM finish the requests that were begun; a second one ends
the program at once.

Example:
  reveille serve --listen 127.0.0.1:4437 --data-dir ./reveille-data")]
    Serve(Box<config::Arguments>),
    /// Appends to a stream; creates the stream if there is none
    #[command(after_help = "\
A stream that is created gets the content type of the append: text/plain, application/json with
--json, or what --content-type says. A JSON array that is appended as a whole becomes one message
per element; with --lines every line is one message, whatever it holds.

The append is sent again when the connection breaks, and still counts once. The offset behind it is
printed when the server has it safe.

Example:
  reveille append /notes 'remember the milk'
  tail -f app.log | reveille append /logs/app --lines
  reveille append /orders --json '{\"id\":7,\"state\":\"paid\"}'")]
    Append(append::Arguments),
    /// Prints what a stream holds
    #[command(after_help = "\
A stream of JSON is printed as one message per line, every other stream as the bytes it holds.
With --follow, reading goes on where it stopped when the server is gone for a while: nothing is
printed twice and nothing is left out.

Example:
  reveille read /notes
  reveille read /notes --offset now --follow")]
    Read(read::Arguments),
    /// Lists streams
    #[command(after_help = "\
Example:
  reveille streams
  reveille streams /agents/ --output json")]
    Streams(streams::Arguments),
    /// Webhook subscriptions on streams
    #[command(after_help = "\
Example:
  reveille sub create workers '/agents/*' --webhook https://example.com/wake
  reveille sub list")]
    Sub {
        #[command(subcommand)]
        command: sub::SubCommand,
    },
    /// Who is woken, how far each is behind, and what went wrong last
    #[command(after_help = "\
There is a consumer for each stream that a subscription matches. It is idle, or collecting events to
be announced together; waking when its endpoint was called, retrying when that failed; live while it
works, and gone when it was given up.

Example:
  reveille consumers
  reveille consumers --failing --subscription workers
  reveille consumers show workers:/agents/task-1")]
    Consumers(consumers::Arguments),
    /// Hands events over, to be delivered to the hooks that match them
    #[command(after_help = "\
An event is a JSON object with a `type`, words with dots between them. Standard input may have one
event per line, or any other JSON with events; they are sent as they come, up to 1000 together. All
events of a batch are taken in, or none; a batch is sent again when the connection breaks, and still
counts once. The ids of the events are printed when the server has them safe.

Example:
  reveille ingest --type webhook.github.push --data '{\"repository\":\"reveille\"}'
  reveille ingest '{\"type\":\"webhook.github.push\",\"repository\":\"reveille\"}'
  tail -f events.jsonl | reveille ingest")]
    Ingest(ingest::Arguments),
    /// Subscriptions on types of events
    #[command(after_help = "\
Example:
  reveille hooks list --failing
  reveille hooks pause 01KA9VGW3J8Y0D1T5S6R7Q8P9N
  reveille hooks update 01KA9VGW3J8Y0D1T5S6R7Q8P9N --worker billing-v2
  reveille hooks resume 01KA9VGW3J8Y0D1T5S6R7Q8P9N")]
    Hooks {
        #[command(subcommand)]
        command: hooks::HooksCommand,
    },
    /// What became of each event, hook by hook
    #[command(after_help = "\
Example:
  reveille deliveries list --failing
  reveille deliveries show 01KA9VGW3J8Y0D1T5S6R7Q8P9N")]
    Deliveries {
        #[command(subcommand)]
        command: deliveries::DeliveriesCommand,
    },
    /// Documents: JSON objects in collections, with versions
    #[command(after_help = "\
Example:
  reveille doc put rooms/r1 '{\"name\":\"kitchen\",\"open\":true}'
  reveille doc query rooms --where 'open == true'
  reveille doc export rooms > rooms.jsonl")]
    Doc {
        #[command(subcommand)]
        command: doc::DocCommand,
    },
    /// Triggers: webhooks for changes of documents
    #[command(after_help = "\
A trigger names a collection, kinds of changes, perhaps a condition, and a webhook. Each change that
it matches becomes a call, in the order of the document's changes, tried until it is accepted or
becomes a dead letter.

Example:
  reveille secret create
  reveille trigger create order-paid --collection orders --event update \\
    --when \"event.document.state == 'paid'\" --webhook https://example.com/ship --enable
  reveille trigger test order-paid --path orders/o1
  reveille trigger show order-paid")]
    Trigger {
        #[command(subcommand)]
        command: trigger::TriggerCommand,
    },
    /// Secrets that the calls of triggers are signed with
    #[command(after_help = "\
Example:
  reveille secret create
  reveille secret rotate --overlap 24h")]
    Secret {
        #[command(subcommand)]
        command: secret::SecretCommand,
    },
    /// Facts: what is said about entities, and who may know
    #[command(after_help = "\
Example:
  reveille fact assert user:alice works_at acme --scope company
  reveille fact query --entity user:alice
  reveille fact retract user:alice works_at --scope company")]
    Fact {
        #[command(subcommand)]
        command: fact::FactCommand,
    },
    /// Gardens: facts for members alone
    #[command(after_help = "\
Example:
  reveille garden create atlas --name 'Project Atlas' --scope team
  reveille garden add atlas user:alice --role writer
  reveille fact assert project:atlas status green --scope team --garden atlas")]
    Garden {
        #[command(subcommand)]
        command: garden::GardenCommand,
    },
    /// Capability tokens, by which somebody may subscribe to facts
    #[command(after_help = "\
Example:
  reveille token issue --subject user:alice --verb subscribe --object scope:company
  reveille token list
  reveille token revoke 00000000-0000-8003-8000-000000000009")]
    Token {
        #[command(subcommand)]
        command: capability::TokenCommand,
    },
    /// Dead letters: deliveries that were given up
    #[command(after_help = "\
Example:
  reveille dlq list
  reveille dlq replay --hook 01KA9VGW3J8Y0D1T5S6R7Q8P9N --reason 'the worker is mended' --wait")]
    Dlq {
        #[command(subcommand)]
        command: dlq::DlqCommand,
    },
    /// Who changed what
    #[command(after_help = "\
Example:
  reveille audit list
  reveille audit verify")]
    Audit {
        #[command(subcommand)]
        command: audit::AuditCommand,
    },
    /// Keys that let people and programs in
    #[command(after_help = "\
A server that was started with `--auth keys` answers whoever has a key: clients find theirs in
--key or REVEILLE_KEY.

Example:
  export REVEILLE_KEY=$ADMIN_KEY
  reveille key create --tenant acme --role user
  reveille key list")]
    Key {
        #[command(subcommand)]
        command: key::KeyCommand,
    },
    /// Checks the signature of a webhook, and says why it is not good
    #[command(after_help = "\
The body is read from standard input, byte for byte as it was received. Exit code 0 means that the
signature is good, 1 that it is not or cannot be checked, 2 that the command line is wrong.

It knows every form that is sent, and says which one it found:

  t=…,sha256=…          wakes of a subscription on streams: --secret
  t=…,kid=…,ed25519=…   wakes of /v1/stream/__ds/subscriptions/: --jwks, or --public-key for one key
  v1,…                  deliveries of events, after Standard Webhooks: --secret, and the request's
                        webhook-id and webhook-timestamp as further headers
  t=…,v1=…              calls of triggers (X-Syntrix-Signature): --secret. What is wrong begins with
                        its code: SIGNATURE_REQUIRED, SIGNATURE_MALFORMED, SIGNATURE_MISMATCH or
                        SIGNATURE_TIMESTAMP_OUT_OF_RANGE

While one secret takes over from another there are several signatures: one that is good is enough.

Example:
  reveille verify --secret whsec_… --header \"$WEBHOOK_SIGNATURE\" < body.json
  reveille verify --secret whsec_… --header 'webhook-id: 01K…' --header 'webhook-timestamp: 1704067200' \\
    --header 'webhook-signature: v1,…' < body.json
  reveille verify --secret whsec_… --header \"X-Syntrix-Signature: $H\" < body.json
  reveille verify --jwks http://127.0.0.1:4437/v1/stream/__ds/jwks.json --header \"$H\" < body.json")]
    Verify(verify::Arguments),
    /// Puts load on a server and reports what it did
    #[command(after_help = "\
Example:
  reveille bench append --connections 64 --streams 1000 --seconds 5
  reveille bench latency --mode sse --output json")]
    Bench {
        #[command(subcommand)]
        workload: reveille_load::Workload,
    },
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Serve(arguments) => serve::run(*arguments),
            Command::Append(arguments) => append::run(arguments),
            Command::Read(arguments) => read::run(arguments),
            Command::Streams(arguments) => streams::run(arguments),
            Command::Sub { command } => sub::run(command),
            Command::Consumers(arguments) => consumers::run(arguments),
            Command::Ingest(arguments) => ingest::run(arguments),
            Command::Hooks { command } => hooks::run(command),
            Command::Deliveries { command } => deliveries::run(command),
            Command::Doc { command } => doc::run(command),
            Command::Trigger { command } => trigger::run(command),
            Command::Secret { command } => secret::run(command),
            Command::Fact { command } => fact::run(command),
            Command::Garden { command } => garden::run(command),
            Command::Token { command } => capability::run(command),
            Command::Dlq { command } => dlq::run(command),
            Command::Audit { command } => audit::run(command),
            Command::Key { command } => key::run(command),
            Command::Verify(arguments) => verify::run(&arguments),
            Command::Bench { workload } => {
                let report = reveille_load::run(&workload)?;
                print!("{}", report.render(workload.target().output));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn everything_is_explained_and_has_an_example() {
        let mut commands = vec![("reveille".to_owned(), Cli::command())];
        while let Some((name, command)) = commands.pop() {
            assert!(command.get_about().is_some(), "{name} is not explained");
            let after = command.get_after_help().map(ToString::to_string);
            assert!(after.unwrap_or_default().contains("Example:"), "{name} has no example");
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{name}: {} is not explained", arg.get_id());
            }
            for inner in command.get_subcommands() {
                commands.push((format!("{name} {}", inner.get_name()), inner.clone()));
            }
        }
    }
}
