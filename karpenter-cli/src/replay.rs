//! `karpenter replay`: makes the decisions of a recording again.

use std::{fs, io::BufReader};

use crate::{
    Error,
    args::ReplayArgs,
    plan::name_of,
    recording::{FILE, replay},
    simulate::set_threads,
};

/// Replays the recording that the command line names, and says what was compared.
///
/// # Errors
/// The recording cannot be read, or the engine asks for something else now.
pub fn run(args: &ReplayArgs) -> Result<String, Error> {
    set_threads(args.threads)?;
    let file = args.folder.join(FILE);
    let name = name_of(&file);
    let recording = fs::File::open(&file).map_err(|source| Error::Unreadable { file: name.clone(), source })?;
    let done = replay(BufReader::new(recording), &name)?;
    let span = done.span.map(|(from, to)| format!(", from {from} to {to}")).unwrap_or_default();
    Ok(format!(
        "the same bytes: {} bytes of requests in {} ticks after {} events{span}; engines: {}\n",
        done.bytes, done.ticks, done.events, done.engines
    ))
}
