//! Words of advice that admission has for the client, gathered while a request is handled.
//!
//! Admission is called deep inside a write and may run more than once, so what it says does not travel through the
//! results: it is noted with the task that handles the request, and the answer gets it as `Warning` headers.

use std::sync::Arc;

use parking_lot::Mutex;

tokio::task_local! {
    static HEARD: Arc<Mutex<Vec<String>>>;
}

/// Runs the handling of one request and returns what was said on the way, each text once.
pub async fn collect<F: Future>(request: F) -> (F::Output, Vec<String>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let output = HEARD.scope(heard.clone(), request).await;
    let heard = std::mem::take(&mut *heard.lock());
    (output, heard)
}

/// Notes a warning; outside of a request nobody listens.
pub fn add(warning: String) {
    let _ = HEARD.try_with(|heard| {
        let mut heard = heard.lock();
        if !heard.contains(&warning) {
            heard.push(warning);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn warnings_belong_to_the_request_in_which_they_were_said() {
        add("nobody hears this".into());
        let (answer, heard) = collect(async {
            add("a".into());
            add("a".into());
            add("b".into());
            1
        })
        .await;
        assert_eq!((answer, heard), (1, vec!["a".to_owned(), "b".to_owned()]));
    }
}
