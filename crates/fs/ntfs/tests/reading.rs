//! Names, sizes, times, streams and contents are those that the mount of `ntfs-3g` shows.

mod common;

use common::{Mount, SHAPES, compare, host_tree, open_image, oracles, tree_of};

fn same_as_ntfs_3g(name: &str) {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = common::shape_of(name).filled(folder.path());
    let found = tree_of(&*open_image(&image));
    let mount = Mount::new(&image, folder.path(), "ro,");
    let expected = host_tree(&mount.0);
    drop(mount);
    assert!(expected.len() > 450);
    compare(&found, &expected);
}

macro_rules! shapes {
    ($($test:ident $name:literal)*) => {
        $(#[test]
        fn $test() {
            same_as_ntfs_3g($name);
        })*

        #[test]
        fn every_shape_is_compared() {
            assert_eq!(SHAPES.iter().map(|shape| shape.name).collect::<Vec<_>>(), [$($name),*]);
        }
    };
}
shapes! {
    clusters_of_a_sector_read_as_ntfs_3g_reads_them "512"
    clusters_of_1_kib_read_as_ntfs_3g_reads_them "1k"
    clusters_of_2_kib_read_as_ntfs_3g_reads_them "2k"
    clusters_of_4_kib_read_as_ntfs_3g_reads_them "4k"
    sectors_of_4_kib_read_as_ntfs_3g_reads_them "4kn"
    clusters_of_8_kib_read_as_ntfs_3g_reads_them "8k"
    sectors_of_4_kib_in_clusters_of_64_kib_read_as_ntfs_3g_reads_them "4kn-64k"
    clusters_of_64_kib_read_as_ntfs_3g_reads_them "64k"
    clusters_of_256_kib_read_as_ntfs_3g_reads_them "256k"
    clusters_of_2_mib_read_as_ntfs_3g_reads_them "2m"
    sectors_of_1_kib_read_as_ntfs_3g_reads_them "1k-1k"
    sectors_of_1_kib_in_clusters_of_4_kib_read_as_ntfs_3g_reads_them "1k-4k"
    sectors_of_2_kib_read_as_ntfs_3g_reads_them "2k-2k"
    sectors_of_2_kib_in_clusters_of_4_kib_read_as_ntfs_3g_reads_them "2k-4k"
    a_volume_with_an_identifier_and_compression_reads_as_ntfs_3g_reads_it "4k-uuid"
    clusters_of_16_kib_read_as_ntfs_3g_reads_them "16k"
    clusters_of_32_kib_read_as_ntfs_3g_reads_them "32k"
    sectors_of_4_kib_in_clusters_of_16_kib_read_as_ntfs_3g_reads_them "4kn-16k"
    clusters_of_128_kib_read_as_ntfs_3g_reads_them "128k"
    clusters_of_1_mib_read_as_ntfs_3g_reads_them "1m"
}
