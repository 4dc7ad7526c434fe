//! Running all passes.

use alloc::sync::Arc;

use obento_base::Result;
use obento_block::BlockDevice;
use obento_driver::{CheckOptions, CheckReport};

use super::inodes::{self, Known};
use super::state::State;
use super::told::{Event, Told};
use super::view::View;
use super::{attributes, connectivity, counts, directories, links, mmp, orphans, quota, resize, super_block};
use crate::feature::RoCompat;

/// Checks the volume on `device` without repairs.
pub(super) fn look(
    device: Arc<dyn BlockDevice>,
    options: &CheckOptions,
    tell: &mut dyn FnMut(Event),
) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let mut told = Told { report: &mut report, tell };
    let view = View::open(device, options, &mut told)?;
    super_block::check(&view, &mut told);
    told.progress("super block", 1, 1);
    let view = Arc::new(view);
    let state = State::new(&view)?;
    state.take_metadata(&view);
    mmp::check(&view, &mut told);
    resize::check(&view, &mut told);
    let orphans = orphans::check(&view, &state, &mut told);
    let known = Known::new(&view, orphans.clone());
    let (mut state, mut attributes, usage) = inodes::check(&view, state, known, options.threads, &mut told);
    attributes::shared(&view, &mut state, &mut attributes, &mut told);
    // Shared blocks are permitted with this feature, since such files are never written.
    let may_share = view.sb.ro_compat.contains(RoCompat::SHARED_BLOCKS);
    if state.has_twice() && !may_share {
        state.budget.renew_nodes();
        inodes::find_twice(&view, &state, &Known::new(&view, orphans), &mut told);
    }
    let state = Arc::new(state);
    directories::check(&view, &state, options.threads, &mut told);
    connectivity::check(&view, &state, &mut told);
    links::check(&view, &state, attributes.doubtful, &mut told);
    counts::check(&view, &state, options.threads, &mut told);
    quota::check(&view, &state, &usage, &mut told);
    let sb = &view.sb;
    report.label = sb.label().to_vec();
    report.block_size = sb.block_size;
    report.checked = true;
    Ok(report)
}
