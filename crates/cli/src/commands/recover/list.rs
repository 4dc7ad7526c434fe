//! `recover --list`: reads all files and lists those that are damaged, without a copy.

use obento::Options;
use obento::base::FileKind;
use obento::copy::{CopyError, CopySource, Observer as _, Problem, ProblemReason, read_data};
use obento::driver::{Access, Checksums};
use obento::host::{HostError, interrupt};
use obento::image::ImageFile;
use obento::walk::{Step, Walk};

use super::report::{Out, Recovery};
use super::search::VolumeSearch;
use super::{Args, note_notices, read_map, root_path, shown, source, unnamed_place, with_map};
use crate::context::Context;
use crate::limit::DataLimit;
use crate::open::{self, join};
use crate::output::{Outcome, Stop};
use crate::replaced::OutputFile;
use crate::report::Report;

/// Runs the subcommand with `--list`.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let address = open::address(&args.source, context)?;
    let map = args.map.as_deref().map(read_map).transpose()?;
    let options = Options { checksums: Checksums::IgnoreIfSupported, ..context.options().image_options() };
    let file = ImageFile::open(&address.image, &options).map_err(open::cannot_open)?;
    let report_file = args.report.as_deref().map(OutputFile::open).transpose()?;
    if open::prepare([&args.source], open::BareOperand::Image, Access::ReadOnly, context) {
        OutputFile::seal(report_file.as_slice(), context);
    }
    let out = Out::new(report_file, &file.host_files().collect::<Vec<_>>(), context)?;
    let image = file.decode(context.registry()).map_err(open::cannot_open)?;
    open::report_notices(args.source.as_encoded_bytes(), &image, context.messages());
    let bad = map.map(|map| with_map(&image, map)).transpose()?;
    let search = VolumeSearch { address: &address, options: &options, bad, context };
    let opened = search.open(image)?;
    note_notices(&opened, &address, context);
    let mut recovery = Recovery::new(out, search.bad.is_some(), false, context);
    recovery.verify(search.verifier(&opened), root_path(&address), unnamed_place(&opened, &address));
    recovery.find_shared_blocks(&opened.volume);
    let opened = search.with_root(opened, &mut recovery)?;
    let source = source(&opened, &address)?;
    let most = DataLimit::of(&opened.volume, context.options().unpack()).bytes();
    let files = read_all(&source, most, &mut recovery);
    // The list is also complete up to the entry at which an error ended the work.
    recovery.report_first_owners(&source);
    recovery.write_lost();
    recovery.finish_list(files?, &shown(&address))
}

/// Reads all files at and below `source`. Returns their number.
///
/// # Errors
///
/// The files have more than `most` bytes of data, the list cannot be written, or the user stopped the work.
fn read_all(source: &CopySource, most: u64, recovery: &mut Recovery<'_>) -> Result<u64, Stop> {
    let top = [&source.prefix[..], &source.path].concat();
    let name = |path: &[u8]| if path.is_empty() { top.clone() } else { join(&top, path) };
    let (mut files, mut left) = (0, most);
    for step in Walk::new(source.node.clone()) {
        if interrupt::is_requested() {
            return Err(Stop::Interrupted);
        }
        let entry = match step {
            Ok(entry) if entry.step == Step::Leave => continue,
            Ok(entry) => {
                recovery.list(&name(&entry.path), &entry.attr);
                if entry.attr.kind != FileKind::Regular {
                    continue;
                }
                entry
            }
            Err(mut damage) => {
                damage.path = name(&damage.path);
                recovery.problem(&Problem::from(damage));
                continue;
            }
        };
        files += 1;
        let path = name(&entry.path);
        match read_data(&entry.node, &path, left, recovery) {
            Ok(len) => left -= len,
            Err(CopyError::Volume(error)) => {
                recovery.problem(&Problem { path, trouble: ProblemReason::Volume(error) });
            }
            Err(CopyError::Host(HostError::Limit { .. })) => {
                let cause = format!("the files have more than {most} bytes of data");
                let report = Report::on("cannot read", &path, cause);
                return Err(report.help("--max-unpacked sets this limit").into());
            }
            Err(CopyError::Host(HostError::Stopped)) => return Err(Stop::Interrupted),
            Err(error) => return Err(Report::from(error).into()),
        }
        recovery.expect_written()?;
    }
    Ok(files)
}
