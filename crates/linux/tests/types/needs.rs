//! The properties that the table of types claims, compared with the options that the kernel was built with.

use obento_linux::Kernel;
use obento_linux::types::needs::ShownPart;
use obento_linux::types::{OTHERS, TYPES};
use obento_testkit::oracle::{Oracle, require};

/// Types whose attributes no option of Linux adds: `fs/*/Kconfig` of Linux 6.1.
const ALWAYS_ATTRIBUTES: [&str; 6] = ["btrfs", "xfs", "jfs", "hfsplus", "gfs2", "ext4"];

/// The options that Debian's kernel lacks, and docs/engine.md explains.
const LACKING: [(&str, &str); 9] = [
    ("f2fs", "CONFIG_F2FS_FS_COMPRESSION"),
    ("f2fs", "CONFIG_UNICODE"),
    ("f2fs", "CONFIG_FS_ENCRYPTION"),
    ("f2fs", "CONFIG_FS_VERITY"),
    ("squashfs", "CONFIG_SQUASHFS_XATTR"),
    ("erofs", "CONFIG_EROFS_FS_ZIP_LZMA"),
    ("ext4", "CONFIG_UNICODE"),
    ("ext4", "CONFIG_FS_ENCRYPTION"),
    ("ext4", "CONFIG_FS_VERITY"),
];

#[test]
fn each_type_with_attributes_names_the_option_that_shows_them() {
    for kind in TYPES.iter().chain(OTHERS) {
        let name = kind.names[0];
        let is_named = kind.needs.iter().any(|need| need.part == ShownPart::Attributes);
        let is_always = ALWAYS_ATTRIBUTES.contains(&name);
        assert_eq!(is_named || is_always, kind.xattrs, "{name}");
        assert!(!is_named || !is_always, "{name}");
        assert!(kind.needs.iter().all(|need| need.option.starts_with("CONFIG_")), "{name}");
    }
}

#[test]
fn the_kernel_has_all_claimed_options_except_those_that_the_documentation_names() {
    if !require(&[Oracle::Program("linux.uml")]) {
        return;
    }
    let config =
        Kernel::installed().and_then(|kernel| kernel.config()).expect("the kernel prints its options");
    assert!(config.has("CONFIG_MMU"), "options are found");
    let all = TYPES.iter().chain(OTHERS);
    let lacking: Vec<_> =
        all.flat_map(|kind| config.lacks(kind).map(|need| (kind.names[0], need.option))).collect();
    assert_eq!(lacking, LACKING);
    let page = include_str!("../../../../docs/engine.md");
    for (name, option) in LACKING {
        let row = page.lines().find(|line| line.starts_with("| ") && line.contains(&format!("`{option}`")));
        assert!(row.is_some_and(|row| row.contains(name)), "{name}: {option}");
    }
}
