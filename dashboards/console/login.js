// The login: the answer sets a cookie that no script can read.

import { byId, setText } from "./dom.js";
import { post } from "./session.js";

const form = byId("login-form");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const ok = byId("login-ok");
  if (ok.disabled) return;
  ok.disabled = true;
  setText(byId("login-error"), "");
  try {
    await post("login", { user: byId("user").value, password: byId("password").value }, "");
    location.replace("./");
  } catch (error) {
    setText(byId("login-error"), error.message);
    byId("password").value = "";
    byId("password").focus();
  }
  ok.disabled = false;
});
