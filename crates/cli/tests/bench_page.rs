//! The page of results in a browser: its numbers are those of the file, and it fits narrow and wide windows,
//! light and dark.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use obento_bench::results::Results;
use obento_bench::statistics::Summary;
use obento_testkit::oracle::Oracle;
use obento_testkit::require;
use serde_json::Value;

/// Shows the page in a frame of each width, and writes its properties as JSON to an element.
const LOOK: &str = r#"<!DOCTYPE html><meta charset="utf-8"><body><script>
const looks = {};
function look(width) {
  const frame = document.createElement("iframe");
  frame.style.width = width + "px";
  frame.onload = () => {
    const page = frame.contentDocument, root = page.documentElement;
    const cells = {};
    for (const cell of page.querySelectorAll("[data-key]")) cells[cell.dataset.key] = cell.textContent;
    const texts = [...page.querySelectorAll("svg text")].filter((text) => text.getBBox().width > 0).length;
    // Bars with their names and figures need no scrolling.
    const bars = [...page.querySelectorAll("svg.bars rect, svg.bars text, svg.bars line")];
    const clipped = bars.filter((part) => part.getBoundingClientRect().right > root.clientWidth).length;
    const sizes = bars.filter((part) => part.tagName === "text").map((part) => part.getBoundingClientRect().height);
    looks[width] = { bars: bars.length, clipped, smallest: Math.min(...sizes), scroll: root.scrollWidth, client: root.clientWidth, cells, texts,
      unnamed: page.querySelectorAll("svg:not([aria-label]), th:not([scope])").length,
      paper: frame.contentWindow.getComputedStyle(page.body).backgroundColor };
    if (Object.keys(looks).length === 2) {
      const said = document.createElement("pre");
      said.id = "looks";
      said.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(looks))));
      document.body.append(said);
    }
  };
  frame.src = "r.html";
  document.body.append(frame);
}
look(360);
look(1280);
</script>"#;

/// Returns the figures of a small run, and their page.
fn measured(folder: &Path) -> Results {
    let obento = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_obento")).current_dir(folder).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    obento(&[
        "bench",
        "seq_write_128k,T=1",
        "bonnie-files",
        "iozone",
        "lat_rand_write_4k",
        "-T",
        "image:ext4",
        "-T",
        "image:xv6",
        "--file-size",
        "1M",
        "--size",
        "64M",
        "--run-time",
        "0.05",
        "--scale",
        "4000",
        "--repeat",
        "2",
        "--repeat-most",
        "2",
        "--output",
        "r.json",
    ]);
    obento(&["bench", "report", "r.json", "--output", "r.html"]);
    Results::load(&folder.join("r.json")).unwrap()
}

/// The properties of the page at both widths.
fn looked(folder: &Path, dark: bool) -> Value {
    std::fs::write(folder.join("look.html"), LOOK).unwrap();
    // The numbers of Blink: 0 is dark, 1 is light.
    let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!dark));
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--allow-file-access-from-files",
        ])
        .args(["--virtual-time-budget=20000", "--dump-dom", &scheme, &profile])
        .arg(format!("file://{}", folder.join("look.html").display()))
        .output()
        .unwrap();
    let page = String::from_utf8_lossy(&output.stdout);
    let said = page.split("<pre id=\"looks\">").nth(1).and_then(|rest| rest.split('<').next());
    let said = said.unwrap_or_else(|| panic!("{page}\n{}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_slice(&decoded(said)).unwrap()
}

/// Encodes base64 as `btoa` does.
fn decoded(text: &str) -> Vec<u8> {
    obento::host::base64::decode(text.trim().as_bytes()).unwrap()
}

/// Returns the medians of the file, by the keys of the page.
fn medians(results: &Results) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for cell in &results.cells {
        for (phase, _) in cell.phases() {
            let figures: Vec<f64> = cell.figures(phase).into_iter().map(|(_, figure)| figure).collect();
            if let Some(summary) = Summary::of(&figures) {
                all.insert(format!("{}|{phase}|{}", cell.workload, cell.target), summary.median);
            }
        }
    }
    all
}

#[test]
fn a_browser_shows_the_numbers_of_the_file_at_every_width_in_light_and_dark() {
    if !require(&[Oracle::Program("chromium")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let medians = medians(&measured(folder.path()));
    assert!(medians.len() > 20, "{medians:?}");
    let mut papers = Vec::new();
    for dark in [false, true] {
        let looks = looked(folder.path(), dark);
        for width in ["360", "1280"] {
            let look = &looks[width];
            assert_eq!(look["scroll"], look["client"], "the page is wider than {width}");
            assert_eq!(look["unnamed"], 0);
            assert!(look["bars"].as_u64().unwrap() > 20);
            assert_eq!(look["clipped"], 0, "bars are cut at {width}");
            assert!(look["smallest"].as_f64().unwrap() >= 12.0, "names of bars are too small at {width}");
            assert!(look["texts"].as_u64().unwrap() > 20);
            let cells = look["cells"].as_object().unwrap();
            assert_eq!(cells.keys().collect::<Vec<_>>(), medians.keys().collect::<Vec<_>>());
            for (key, text) in cells {
                let (shown, median) = (text.as_str().unwrap(), medians[key]);
                let number: f64 = shown.replace([',', ' '], "").parse().unwrap();
                // Three digits are shown.
                assert!(
                    (number - median).abs() <= 0.006 * median.abs() + 0.005,
                    "{key}: {shown} for {median}"
                );
            }
        }
        papers.push(looks["360"]["paper"].clone());
    }
    assert_eq!(papers, ["rgb(255, 255, 255)", "rgb(18, 22, 28)"]);
}
