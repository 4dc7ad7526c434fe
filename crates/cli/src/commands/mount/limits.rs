//! The mount options for quota limits.
//!
//! Source: Linux `fs/ext4/super.c` `ext4_check_quota_consistency`.

use obento::Volume;
use obento::driver::QuotaLimits;
use obento_fuse::options::MountOptions;

use crate::context::Context;
use crate::report::Report;

/// Checks that `volume` has the quota files whose limits `options` request. The options for quota files of the old format
/// have no effect on a volume with the feature `quota`.
///
/// # Errors
///
/// The volume has no such quota files.
pub fn expect_limits(
    options: &MountOptions,
    volume: &Volume,
    shown: &[u8],
    context: &Context,
) -> Result<(), Report> {
    if options.limits.is_empty() && options.old_quota.is_none() {
        return Ok(());
    }
    let info = volume.info();
    if !info.probe.fs_type.starts_with("ext") {
        let cause = format!("{} has no quotas", info.probe.fs_type);
        return Err(Report::on("cannot mount", shown, cause).help("omit the quota options"));
    }
    let has = |name: &str| info.features.iter().any(|feature| feature == name);
    let missing = match (&options.old_quota, has("quota")) {
        (Some(word), true) => {
            context.note(shown, format!("the volume has the feature quota; the option {word} has no effect"));
            None
        }
        (Some(word), false) => {
            let report = Report::on("cannot mount", shown, "quota files of the old format are not supported");
            let help = format!("omit {word}, or create new quota files: obento tune IMAGE -O quota");
            return Err(report.help(help));
        }
        (None, has_files) => (!has_files).then_some("quota"),
    };
    let missing = missing
        .or_else(|| (options.limits.contains(QuotaLimits::PROJECTS) && !has("project")).then_some("project"));
    let Some(feature) = missing else { return Ok(()) };
    let report = Report::on("cannot mount", shown, format!("the volume does not have the feature {feature}"));
    Err(report.help(format!("omit the quota options, or run: obento tune IMAGE -O {feature}")))
}
