// The search excludes words after a hyphen. Options such as --init-from are searched without their hyphens.
document.addEventListener("keyup", ({ target }) => {
  if (target.name === "query") target.value = target.value.replace(/(^|\s)-+/g, "$1");
}, true);
