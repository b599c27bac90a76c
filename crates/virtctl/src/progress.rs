//! What is being waited for: a line with a spinner on a terminal, plain lines elsewhere. Nothing is shown for what takes less
//! than a second.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::output::plain;
use crate::time::human;

const PATIENCE: Duration = Duration::from_secs(1);
const FRAME: Duration = Duration::from_millis(120);
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// What is being waited for.
pub(crate) struct Progress {
    state: Mutex<State>,
    began: Instant,
    live: bool,
}

#[derive(Default)]
struct State {
    text: String,
    shown: String,
    frame: usize,
}

impl Progress {
    /// Begins to wait for something.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let state = State { text: plain(&text.into()).into_owned(), ..State::default() };
        Self { state: Mutex::new(state), began: Instant::now(), live: std::io::stderr().is_terminal() }
    }

    /// Whether there is a terminal, on which one line is drawn again and again.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// There is news.
    pub(crate) fn say(&self, text: impl Into<String>) {
        if let Ok(mut state) = self.state.lock() {
            state.text = plain(&text.into()).into_owned();
        }
    }

    /// Shows the progress while the work is done.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut frames = tokio::time::interval(FRAME);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    self.clear();
                    return done;
                }
                _ = frames.tick() => self.draw(),
            }
        }
    }

    fn draw(&self) {
        let elapsed = self.began.elapsed();
        let Ok(mut state) = self.state.lock() else { return };
        if elapsed < PATIENCE {
            return;
        }
        let mut out = std::io::stderr().lock();
        if self.live {
            state.frame = (state.frame + 1) % FRAMES.len();
            let seconds = human(i64::try_from(elapsed.as_secs()).unwrap_or_default());
            let line = format!("{} {} ({seconds})", FRAMES[state.frame], state.text);
            // A line that wraps could not be drawn over.
            let line: String = line.chars().take(width()).collect();
            let _ = write!(out, "\r\x1b[2K{line}");
            state.shown = state.text.clone();
        } else if state.shown != state.text {
            let _ = writeln!(out, "{}", state.text);
            state.shown = state.text.clone();
        }
        let _ = out.flush();
    }

    fn clear(&self) {
        let drawn = self.state.lock().is_ok_and(|state| !state.shown.is_empty());
        if self.live && drawn {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}

/// Columns of the terminal, without the last one.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_col);
    usize::from(if size < 2 { 80 } else { size }) - 1
}
