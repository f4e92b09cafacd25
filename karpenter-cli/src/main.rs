//! The `karpenter` command.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;
use karpenter_cli::{
    Error,
    args::{Args, ChangeArgs, Command, ConsolidateArgs, ExplainArgs, PlanArgs},
    consolidate, explain, outlook, output, plan, pool_outlook,
};

fn main() -> ExitCode {
    let Args { command } = Args::parse();
    let no_changes = ChangeArgs::default();
    let (input, policies, changes) = match &command {
        Command::Plan(PlanArgs { input, policies, changes, .. })
        | Command::Consolidate(ConsolidateArgs { input, policies, changes, .. }) => (input, policies, changes),
        Command::Explain(ExplainArgs { input, policies, .. }) => (input, policies, &no_changes),
    };
    if let Err(error) = input.check(changes).and_then(|()| policies.check()) {
        error.exit();
    }
    let written = answer(&command).and_then(|text| print(&text));
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

fn answer(command: &Command) -> Result<String, Error> {
    match command {
        Command::Plan(args) => output::render(&plan::run(args)?, args.output, args.with_certificate),
        Command::Consolidate(args) => output::render_commands(&consolidate::run(args)?, args.output),
        Command::Explain(args) if !args.nodes.is_empty() => output::render_outlooks(&outlook::run(args)?, args.output),
        Command::Explain(args) if !args.node_pools.is_empty() => {
            output::render_pool_outlooks(&pool_outlook::run(args)?, args.output)
        }
        Command::Explain(args) => output::render_explanation(&explain::run(args)?, args.output),
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
