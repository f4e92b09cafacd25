//! The `karpenter` command.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;
use karpenter_cli::{
    Error,
    args::{Args, ChangeArgs, Command, ConsolidateArgs, ExplainArgs, PlanArgs},
    consolidate, explain, outlook, output, plan, pool_outlook, replay, run, simulate,
};

/// Dumps of clusters are many small objects, which this allocator makes and drops in half the time of the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Args { command } = Args::parse();
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

/// Checks what the parser of the command line cannot.
fn check(command: &Command) -> Result<(), clap::Error> {
    let no_changes = ChangeArgs::default();
    let (input, policies, changes) = match command {
        Command::Plan(PlanArgs { input, policies, changes, .. })
        | Command::Consolidate(ConsolidateArgs { input, policies, changes, .. }) => (input, policies, changes),
        Command::Explain(ExplainArgs { input, policies, .. }) => (input, policies, &no_changes),
        Command::Simulate(_) | Command::Replay(_) | Command::Run(_) => return Ok(()),
    };
    input.check(changes).and_then(|()| policies.check())
}

fn carry_out(command: &Command) -> Result<(), Error> {
    if let Command::Run(args) = command {
        return run::run(args);
    }
    if let Command::Simulate(args) = command {
        let done = simulate::run(args)?;
        print(&done.transcript)?;
        return done.verdict();
    }
    print(&answer(command)?)
}

fn answer(command: &Command) -> Result<String, Error> {
    match command {
        Command::Plan(args) => output::render(&plan::run(args)?, args.output, args.with_certificate),
        Command::Consolidate(args) => output::render_commands(&consolidate::run(args)?, args.output),
        Command::Explain(args) if !args.nodes.is_empty() => output::render_outlooks(&outlook::run(args)?, args.output),
        Command::Explain(args) if !args.node_pools.is_empty() => {
            output::render_pool_outlooks(&pool_outlook::run(args)?, args.output)
        }
        Command::Explain(args) => output::render_explanation(&explain::run(args)?, args.output),
        Command::Simulate(args) => Ok(simulate::run(args)?.transcript),
        Command::Replay(args) => replay::run(args),
        Command::Run(args) => run::run(args).map(|()| String::new()),
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
