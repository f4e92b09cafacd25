//! The `karpenter` command.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use karpenter_cli::{
    Error,
    args::{Args, ChangeArgs, Command, ConsolidateArgs, ConvertArgs, ExplainArgs, PlanArgs},
    catalog, consolidate, convert,
    error::one_line,
    explain, outlook, output, plan, pool_outlook, replay, simulate,
};

/// Dumps of clusters are many small objects, which this allocator makes and drops in half the time of the system's. It asks for no
/// huge pages: where memory is in pieces, a new process waits longer for these than they save.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// As `kubectl karpenter` this program has another name.
const PLUGIN: &str = "kubectl-karpenter";

fn main() -> ExitCode {
    let Args { command } = Args::read(arguments(env::args_os().collect()));
    if let Err(error) = check(&command) {
        error.exit();
    }
    let written = carry_out(&command);
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut err = io::stderr().lock();
            for line in error.lines() {
                // There is nobody left to tell if standard error is closed.
                let _ = writeln!(err, "karpenter: {line}");
            }
            ExitCode::from(error.exit_status())
        }
    }
}

/// What was asked for. As a plugin of `kubectl` it is about the cluster that `kubectl` speaks to, unless dumps are named.
fn arguments(mut given: Vec<OsString>) -> Vec<OsString> {
    let is_plugin = given.first().is_some_and(|path| Path::new(path).file_stem() == Some(OsStr::new(PLUGIN)));
    let is_asked =
        given.get(1).is_some_and(|word| ["plan", "consolidate", "explain"].iter().any(|asked| word == asked));
    let names_dumps = given.iter().any(|word| word.to_string_lossy().starts_with("--cluster"));
    if cfg!(feature = "kube") && is_plugin && is_asked && !names_dumps {
        given.insert(2, "--live".into());
    }
    given
}

/// Checks what the parser of the command line cannot.
fn check(command: &Command) -> Result<(), clap::Error> {
    if let Command::Plan(args) = command {
        args.check()?;
    }
    let no_changes = ChangeArgs::default();
    let (input, policies, changes) = match command {
        Command::Plan(PlanArgs { input, policies, changes, .. })
        | Command::Consolidate(ConsolidateArgs { input, policies, changes, .. }) => (input, policies, changes),
        Command::Explain(ExplainArgs { input, policies, .. }) => (input, policies, &no_changes),
        Command::Convert(args) => return args.check(),
        _ => return Ok(()),
    };
    input.check(changes).and_then(|()| policies.check())
}

fn carry_out(command: &Command) -> Result<(), Error> {
    match command {
        Command::Plan(args) => print(&output::render(&plan::run(args)?, args.output, args.with_certificate)?),
        Command::Consolidate(args) => print(&output::render_commands(&consolidate::run(args)?, args.output)?),
        Command::Explain(args) => print(&explained(args)?),
        Command::Simulate(args) => {
            let done = simulate::run(args)?;
            print(&done.transcript)?;
            done.verdict()
        }
        Command::Replay(args) => print(&replay::run(args)?),
        Command::Convert(args) => converted(args),
        Command::Catalog(args) => sold(args),
        #[cfg(feature = "kube")]
        Command::Run(args) => karpenter_cli::run::run(args),
    }
}

fn converted(args: &ConvertArgs) -> Result<(), Error> {
    let conversion = convert::run(args)?;
    warn(conversion.notes.iter().map(|note| format!("{}: {}", note.object, note.message)));
    print(&convert::text(&conversion, args.output)?)
}

fn sold(args: &catalog::CatalogArgs) -> Result<(), Error> {
    let (types, warnings) = catalog::run(args)?;
    warn(warnings);
    print(&catalog::text(&types, args.output)?)
}

/// The answers. What was left out or guessed may be why they are as they are, and a list of answers has no room for it.
fn explained(args: &ExplainArgs) -> Result<String, Error> {
    if !args.nodes.is_empty() {
        let (nodes, warnings) = outlook::run(args)?;
        warn(warnings);
        return output::render_outlooks(&nodes, args.output);
    }
    if !args.node_pools.is_empty() {
        let (pools, warnings) = pool_outlook::run(args)?;
        warn(warnings);
        return output::render_pool_outlooks(&pools, args.output);
    }
    let explanation = explain::run(args)?;
    warn(explanation.warnings.iter().cloned());
    output::render_explanation(&explanation, args.output)
}

/// Tells on standard error what somebody should look at.
fn warn(warnings: impl IntoIterator<Item = String>) {
    let mut err = io::stderr().lock();
    for warning in warnings {
        // There is nobody left to tell if standard error is closed.
        let _ = writeln!(err, "karpenter: {}", one_line(&warning));
    }
}

/// Writes to standard output; a reader that has seen enough, such as `head`, is no error.
fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(source) if source.kind() != io::ErrorKind::BrokenPipe => Err(Error::Unwritable { source }),
        _ => Ok(()),
    }
}

#[cfg(all(test, feature = "kube"))]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_plugin_looks_at_the_cluster_that_runs() {
        for (given, expected) in [
            ("karpenter plan", "karpenter plan"),
            ("/bin/kubectl-karpenter plan -o json", "/bin/kubectl-karpenter plan --live -o json"),
            ("kubectl-karpenter explain shop/web", "kubectl-karpenter explain --live shop/web"),
            ("kubectl-karpenter plan --cluster=a.json", "kubectl-karpenter plan --cluster=a.json"),
            ("kubectl-karpenter simulate day.txt", "kubectl-karpenter simulate day.txt"),
            ("kubectl-karpenter", "kubectl-karpenter"),
        ] {
            assert_eq!(arguments(words(given)), words(expected), "{given}");
        }
    }
}
