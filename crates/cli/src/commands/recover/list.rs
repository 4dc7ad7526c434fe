//! `recover --list`: reads all files and lists those that are damaged, without a copy.

use std::io;

use obento::Options;
use obento::base::FileKind;
use obento::copy::{CopyError, CopySource, Observer as _, Problem, copy_to_writer};
use obento::driver::{Access, Checksums};
use obento::host::interrupt;
use obento::image::ImageFile;
use obento::walk::{Step, Walk};

use super::report::{Out, Recovery};
use super::search::VolumeSearch;
use super::{Args, note_notices, read_map, shown, source, start, with_map};
use crate::context::Context;
use crate::open::{self, join};
use crate::output::{Outcome, Output, Stop};
use crate::report::Report;

/// Runs the subcommand with `--list`.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let address = open::address(&args.source, context)?;
    let map = args.map.as_deref().map(read_map).transpose()?;
    let options = Options { checksums: Checksums::Ignore, ..context.options().image_options() };
    let file = ImageFile::open(&address.image, &options).map_err(open::cannot_open)?;
    let out = match &args.report {
        Some(path) => Out::File(crate::output::empty_output(path, &file.host_files().collect::<Vec<_>>())?),
        None => Out::Standard(Output::stdout()),
    };
    open::seal_before_decoding([&args.source], open::BareOperand::Image, Access::ReadOnly, context);
    let image = file.decode(context.registry()).map_err(open::cannot_open)?;
    open::report_notices(args.source.as_encoded_bytes(), &image, context.messages());
    let bad = map.map(|map| with_map(&image, map)).transpose()?;
    let search = VolumeSearch { address: &address, options: &options, bad, context };
    let opened = search.open(image)?;
    note_notices(&opened, &address, context);
    let prefix = [&shown(&address)[..], b":", start(&address)].concat();
    let mut recovery = Recovery::new(out, search.bad.is_some(), prefix, None, context);
    let opened = search.with_root(opened, &mut recovery)?;
    let source = source(&opened, &address)?;
    let files = read_all(&source, &mut recovery)?;
    recovery.finish_list(files, &shown(&address))
}

/// Reads all files at and below `source`. Returns their number.
fn read_all(source: &CopySource, recovery: &mut Recovery<'_>) -> Result<u64, Stop> {
    let top = [&source.prefix[..], &source.path].concat();
    let name = |path: &[u8]| if path.is_empty() { top.clone() } else { join(&top, path) };
    let mut files = 0;
    for step in Walk::new(source.node.clone()) {
        if interrupt::is_requested() {
            return Err(Stop::Interrupted);
        }
        let entry = match step {
            Ok(entry) if entry.step == Step::Leave || entry.attr.kind != FileKind::Regular => continue,
            Ok(entry) => entry,
            Err(mut damage) => {
                damage.path = name(&damage.path);
                recovery.problem(&Problem::from(damage));
                continue;
            }
        };
        files += 1;
        match copy_to_writer(&entry.node, &name(&entry.path), &mut io::sink(), recovery) {
            Ok(_) => {}
            Err(CopyError::Output(_)) => return Err(Stop::Interrupted),
            Err(error) => return Err(Report::from(error).into()),
        }
    }
    Ok(files)
}
