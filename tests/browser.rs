//! The report in a real browser, driven over its debugging pipe: it opens without a network, zooms, shows a gap's cause and
//! stays responsive with 100,000 operations. Without a browser (`apt-get install chromium-headless-shell`) it says so.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use workbench::profile::synth;

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
    let named = std::env::var_os("WORKBENCH_BROWSER").map(PathBuf::from);
    let found = named.or_else(|| {
        let folders: Vec<_> = std::env::split_paths(&path).collect();
        names.iter().flat_map(|n| folders.iter().map(move |f| f.join(n))).find(|p| p.is_file())
    });
    if found.is_none() {
        eprintln!("skipped: no browser here ({}); `apt-get install chromium-headless-shell`", names.join(", "));
    }
    found
}

/// A page in a browser of its own.
struct Tab {
    child: Child,
    to: std::fs::File,
    from: BufReader<std::fs::File>,
    session: String,
    next: u64,
    /// Everything that the page asked for, and what went wrong in it.
    requests: Vec<String>,
    errors: Vec<String>,
    loaded: bool,
    _profile: tempfile::TempDir,
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which nobody else owns.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    }
}

impl Tab {
    fn open(browser: &Path) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let ((theirs_in, to), (from, theirs_out)) = (pipe(), pipe());
        let mut command = Command::new(browser);
        command
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--remote-debugging-pipe", "--window-size=1400,1000", "--host-resolver-rules=MAP * ~NOTFOUND"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let ends = (theirs_in.as_raw_fd(), theirs_out.as_raw_fd());
        // SAFETY: only calls that may be made between fork and exec. Twice, for an end may itself be number 3 or 4.
        unsafe {
            command.pre_exec(move || {
                let (a, b) =
                    (libc::fcntl(ends.0, libc::F_DUPFD_CLOEXEC, 10), libc::fcntl(ends.1, libc::F_DUPFD_CLOEXEC, 10));
                match libc::dup2(a, 3) == 3 && libc::dup2(b, 4) == 4 {
                    true => Ok(()),
                    false => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let child = command.spawn().unwrap();
        let mut tab = Self {
            child,
            to: to.into(),
            from: BufReader::new(from.into()),
            session: String::new(),
            next: 0,
            requests: Vec::new(),
            errors: Vec::new(),
            loaded: false,
            _profile: profile,
        };
        let target = tab.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        tab.session = tab.call("Target.attachToTarget", attach)["sessionId"].as_str().unwrap().into();
        for domain in ["Page", "Network", "Runtime", "Log"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab
    }

    fn receive(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser ended");
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Network.requestWillBeSent" => {
                self.requests.push(params["request"]["url"].as_str().unwrap_or_default().into())
            }
            "Runtime.exceptionThrown" => self.errors.push(params["exceptionDetails"].to_string()),
            "Log.entryAdded" if params["entry"]["level"] == "error" => {
                self.errors.push(params["entry"]["text"].to_string())
            }
            "Page.loadEventFired" => self.loaded = true,
            _ => {}
        }
        message
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let answer = self.receive();
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    /// Opens a file and waits until it is loaded.
    fn load(&mut self, file: &Path) -> Duration {
        let began = Instant::now();
        (self.loaded, self.requests, self.errors) = (false, Vec::new(), Vec::new());
        self.call("Page.navigate", json!({"url": format!("file://{}", file.display())}));
        while !self.loaded {
            self.receive();
        }
        began.elapsed()
    }

    /// The value of an expression in the page.
    fn eval(&mut self, expression: &str) -> Value {
        let answer = self.call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    fn mouse(&mut self, kind: &str, (x, y): (f64, f64), more: Value) {
        let mut event = json!({"type": kind, "x": x, "y": y, "button": "none"});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.call("Input.dispatchMouseEvent", event);
    }

    fn click(&mut self, at: (f64, f64)) {
        for kind in ["mousePressed", "mouseReleased"] {
            self.mouse(kind, at, json!({"button": "left", "clickCount": 1}));
        }
    }

    /// What the first timeline shows, pixel by pixel.
    fn picture(&mut self) -> String {
        // Two frames, so that what an event asked for has been drawn.
        let wait = "new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(1))))";
        self.call("Runtime.evaluate", json!({"expression": wait, "awaitPromise": true}));
        self.eval("document.querySelector('.tl canvas').toDataURL()").as_str().unwrap().into()
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `workbench gaps` of a made-up decode loop, as a page.
fn page(folder: &Path, steps: u64, how: &str) -> PathBuf {
    let (capture, page) = (folder.join("capture.json"), folder.join("page.html"));
    let mut out = std::io::BufWriter::new(std::fs::File::create(&capture).unwrap());
    synth::kineto(steps, 32, 1, &mut out).unwrap();
    out.flush().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_workbench"))
        .args(["gaps", capture.to_str().unwrap(), "--step", how, "--html", page.to_str().unwrap()])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    page
}

/// The middle of the longest gap of the first timeline, in the whole view: where it is on the page, and its name.
const LONGEST: &str = "(() => {
    const box = document.querySelector('.tl'), c = box.querySelector('canvas');
    const d = JSON.parse(document.getElementById(box.dataset.from).textContent);
    c.scrollIntoView({block: 'center'});
    const s = d.segments.filter(s => s[4] === 'gap').reduce((a, b) => b[1] > a[1] ? b : a);
    const r = c.getBoundingClientRect(), left = 180;
    const x = r.left + left + (s[0] + s[1] / 2) / d.window_ns * (c.clientWidth - left);
    return {x, y: r.top + 26 + 19, name: d.names[s[2]], ns: s[1], segments: d.segments.length};
})()";

#[test]
fn a_gap_shows_its_cause_and_nothing_is_fetched() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path(), 5, "profiler");
    let mut tab = Tab::open(&browser);
    tab.load(&page);
    assert_eq!(tab.requests, [format!("file://{}", page.display())], "the page asks for itself alone");
    assert!(tab.eval("document.title").as_str().unwrap().contains("Gaps"));

    let gap = tab.eval(LONGEST);
    let at = (gap["x"].as_f64().unwrap(), gap["y"].as_f64().unwrap());
    let whole = tab.picture();
    tab.click(at);
    let info = tab.eval("document.querySelector('.tl .info').textContent");
    let info = info.as_str().unwrap();
    for part in ["Idle: ", gap["name"].as_str().unwrap(), "Evidence: ", "Runner-up: ", "it lost because"] {
        assert!(info.contains(part), "no `{part}` in: {info}");
    }
    let pinned = tab.picture();
    assert_ne!(whole, pinned, "the gap that was clicked is framed");

    // The wheel zooms in where the pointer is, a drag moves, a double click shows the whole again.
    tab.mouse("mouseWheel", at, json!({"deltaX": 0, "deltaY": -400}));
    let zoomed = tab.picture();
    assert_ne!(zoomed, pinned);
    tab.mouse("mousePressed", at, json!({"button": "left", "clickCount": 1}));
    tab.mouse("mouseMoved", (at.0 + 60.0, at.1), json!({"button": "left", "buttons": 1}));
    tab.mouse("mouseReleased", (at.0 + 60.0, at.1), json!({"button": "left", "clickCount": 1}));
    let moved = tab.picture();
    assert_ne!(moved, zoomed);
    tab.eval("document.querySelector('button[data-act=all]').click()");
    assert_eq!(tab.picture(), pinned);
    assert!(tab.errors.is_empty(), "{:?}", tab.errors);
    assert_eq!(tab.requests.len(), 1, "nothing was fetched later either: {:?}", tab.requests);
}

/// Loading within seconds, and each zoom within the tenth of a second that a hand takes for at once.
#[test]
fn a_hundred_thousand_operations_stay_responsive() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path(), 625, "whole");
    let mut tab = Tab::open(&browser);
    let load = tab.load(&page);
    let gap = tab.eval(LONGEST);
    assert!(gap["segments"].as_u64().unwrap() > 150_000, "100,000 operations and the gaps between them: {gap}");
    let timed = tab.eval(
        "(() => {
            const c = document.querySelector('.tl canvas'), r = c.getBoundingClientRect(), ms = [];
            for (let i = 0; i < 40; i++) {
                const began = performance.now();
                c.dispatchEvent(new WheelEvent('wheel', {deltaY: i < 20 ? -150 : 150, clientX: r.left + 700,
                    clientY: r.top + 40, cancelable: true}));
                c.getContext('2d').getImageData(0, 0, 1, 1);
                ms.push(performance.now() - began);
            }
            return ms.sort((a, b) => a - b);
        })()",
    );
    let ms: Vec<f64> = timed.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    let (median, worst) = (ms[ms.len() / 2], ms[ms.len() - 1]);
    println!(
        "{} MB page: loaded in {load:.2?}; a zoom takes {median:.1} ms, at most {worst:.1} ms",
        std::fs::metadata(&page).unwrap().len() / 1_000_000
    );
    assert!(median < 100.0 && worst < 400.0, "a zoom takes {median:.1} ms, at most {worst:.1} ms");
    assert!(load < Duration::from_secs(20), "{load:?}");
    let at = (gap["x"].as_f64().unwrap(), gap["y"].as_f64().unwrap());
    tab.eval("document.querySelector('button[data-act=all]').click()");
    tab.click(at);
    let info = tab.eval("document.querySelector('.tl .info').textContent");
    assert!(info.as_str().unwrap().starts_with("Idle: "), "{info}");
    assert!(tab.errors.is_empty(), "{:?}", tab.errors);
}
