// A button with data-copy="id" selects and copies that element's text; the element after it then shows its data-copied.
// Without a clipboard (plain HTTP) the button stays hidden.
if (navigator.clipboard) {
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      getSelection().selectAllChildren(source);
      await navigator.clipboard.writeText(source.textContent);
      const said = button.nextElementSibling;
      said.textContent = said.dataset.copied;
    });
  }
}
