// The login: the answer sets a cookie that no script can read.

import { byId, setText } from "./dom.js";
import { post } from "./session.js";

const form = byId("login-form");

// A link from another site comes without the cookie: who is logged in already is sent on.
fetch("../session", { credentials: "same-origin", cache: "no-store" })
  .then(async (answer) => {
    if (answer.ok) enter(await answer.json());
  })
  .catch(() => {});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const ok = byId("login-ok");
  if (ok.disabled) return;
  ok.disabled = true;
  setText(byId("login-error"), "");
  try {
    enter(await post("login", { user: byId("user").value, password: byId("password").value }, ""));
  } catch (error) {
    setText(byId("login-error"), error.message);
    byId("password").value = "";
    byId("password").focus();
  }
  ok.disabled = false;
});

/** To the console, for those who may look at it. */
function enter(told) {
  if (told.role === "known") setText(byId("login-error"), `${told.user} may not look here: it needs the role read.`);
  else location.replace("./");
}
