// Who is logged in, and what a request that changes something has to show for it.

let known = null;

/** Asks the node once, or anew; sends the page to the login if nobody is logged in. */
export async function session(anew = false) {
  if (known === null || anew) {
    const answer = await fetch("../session", { credentials: "same-origin", cache: "no-store" });
    if (answer.status === 401) {
      toLogin();
      throw new Error("nobody is logged in");
    }
    if (!answer.ok) throw new Error(`the node answered ${answer.status}`);
    known = await answer.json();
  }
  return known;
}

export function toLogin() {
  known = null;
  location.assign("login.html");
}

/** Of a request with a body: an answer of 401 leads to the login. */
export async function post(path, body, csrf) {
  let answer;
  try {
    answer = await fetch(`../${path}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Evenkeel-Console": "1", "X-Evenkeel-CSRF": csrf },
      body: JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch {
    throw new Error("the node does not answer: is it still running?");
  }
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const error = new Error(value.error ?? `the node answered ${answer.status}`);
    error.status = answer.status;
    throw error;
  }
  return value;
}
