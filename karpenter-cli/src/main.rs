//! The `karpenter` command.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;
use karpenter_cli::{
    Error,
    args::{Args, Command},
    output, plan,
};

fn main() -> ExitCode {
    let Args { command: Command::Plan(args) } = Args::parse();
    if let Err(error) = args.check() {
        error.exit();
    }
    let written =
        plan::run(&args).and_then(|outcome| output::render(&outcome, args.output)).and_then(|text| print(&text));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // There is nobody left to tell if standard error is closed.
            let _ = writeln!(io::stderr(), "karpenter: {}", error.one_line());
            ExitCode::FAILURE
        }
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
